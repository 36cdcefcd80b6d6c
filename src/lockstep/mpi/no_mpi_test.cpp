// A world without an MPI communicator, in a build without MPI: this program has no_mpi.cpp.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/mpi/availability.h"
#include "lockstep/mpi/connect.h"

namespace lockstep {
namespace {

class NoExchange final : public AddressExchange {
 public:
  void exchange(const std::string& /*own*/) override { ADD_FAILURE() << "nothing to exchange"; }
  [[nodiscard]] std::string of(int /*rank*/) override { return ""; }
};

TEST(NoMpi, ARequestedBackendIsRefusedWithInstructions) {
  Membership membership;
  membership.global_ranks = {0, 1};
  membership.hosts = {0, 0};
  membership.addresses = {"a", "a"};
  membership.registry = std::make_shared<GroupRegistry>();
  NoExchange addresses;
  try {
    (void)connect_by_mpi()(membership, addresses, Deadline::after(std::chrono::seconds(1)), {});
    FAIL() << "connected without MPI";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the world has no MPI communicator"), std::string::npos) << text;
    EXPECT_NE(text.find("built without MPI"), std::string::npos) << text;
    EXPECT_NE(text.find("-DLOCKSTEP_MPI=ON"), std::string::npos) << text;
    EXPECT_NE(text.find("init(MPI_Comm)"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace lockstep
