#include "lockstep/launch/foreign.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;
using testing::Rank;

// As with the variables of mpirun: ranks per host, but neither nodes nor an address.
Placement placement(int rank, int size, int local_size, const std::string& job) {
  Placement result;
  result.rank = rank;
  result.size = size;
  result.local_rank = rank % local_size;
  result.local_size = local_size;
  result.source = PlacementSource::open_mpi;
  result.job = job + std::to_string(::getpid());
  return result;
}

TEST(ForeignLauncher, RanksThatAreAllOnOneHostMeetWithoutAnAddressOrASecretFile) {
  testing::run_ranks_as_threads(3, [](Rank& self) {
    const auto world = meet_under_foreign_launcher(
        placement(self.rank(), self.size(), self.size(), "one-host-"), {}, Deadline::after(60s));
    EXPECT_EQ(world.rank(), self.rank());
    EXPECT_EQ(world.size(), self.size());
    EXPECT_EQ(world.num_hosts(), 1);
  });
}

TEST(ForeignLauncher, RanksOnSeveralHostsWithoutAnAddressAreToldHowToGiveOne) {
  try {
    (void)meet_under_foreign_launcher(placement(0, 4, 2, "two-hosts-"), {}, Deadline::after(60s));
    FAIL() << "met without the ranks of the other host";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("LOCKSTEP_RENDEZVOUS=HOST:PORT"), std::string::npos)
        << error.what();
  }
}

TEST(ForeignLauncher, ARankThatDoesNotArriveIsNamedAtTheDeadline) {
  try {
    (void)meet_under_foreign_launcher(placement(0, 2, 2, "alone-"), {}, Deadline::after(1s));
    FAIL() << "met a rank that was never started";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 1) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
