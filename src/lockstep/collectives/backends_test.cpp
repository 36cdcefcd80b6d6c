// The settings of a job reach the backend of its groups.
#include "lockstep/collectives/backends.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/fabric/backend_choice.h"
#include "lockstep/fabric/group.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

TEST(Backends, EncryptionIsStatedWithTheReasonOfTheChoice) {
  for (const bool encrypts : {false, true}) {
    const auto point = MeetingPoint::of_threads();
    const auto server = point.serve();
    testing::run_ranks_as_threads(2, [&](testing::Rank& self) {
      const auto world = point.join(self.rank(), self.size());
      world.groups()->set_network_settings({.encrypts = encrypts});
      const auto group = make_group(world, {}, BackendOptions{BackendKind::tcp});
      EXPECT_EQ(group->reason(),
                encrypts ? "requested; data between them are encrypted" : "requested");
      std::vector<std::int64_t> values(100'000, self.rank() + 1);
      const auto bytes = std::as_writable_bytes(std::span(values));
      group->wait(*group->start({.kind = Collective::all_reduce,
                                 .dtype = DType::int64,
                                 .count = static_cast<std::int64_t>(values.size()),
                                 .input = bytes,
                                 .output = bytes},
                                nullptr));
      EXPECT_EQ(values, std::vector<std::int64_t>(100'000, 3));
    });
  }
}

// No silent downgrade: a job that requests encryption gets no backend without it.
TEST(Backends, MpiRefusesEncryption) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  const auto world = point.join(0, 1);
  world.groups()->set_network_settings({.encrypts = true});
  try {
    (void)make_group(world, {}, BackendOptions{BackendKind::mpi});
    ADD_FAILURE() << "no refusal";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("backend mpi does not encrypt"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lockstep
