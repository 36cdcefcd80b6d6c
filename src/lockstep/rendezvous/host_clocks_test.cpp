#include "lockstep/rendezvous/host_clocks.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::Rank;

// Hosts whose clocks differ by a known amount: rank r is on host r / 2.
TEST(HostClocks, OffsetsAreFoundWithinTheErrorThatIsStated) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  const std::map<int, std::chrono::nanoseconds> ahead{{0, 0ns}, {1, 5s}, {2, -3h}};
  testing::run_ranks_as_threads(5, [&](Rank& self) {
    Placement placement;
    placement.rank = self.rank();
    placement.size = 5;
    placement.source = PlacementSource::plain;
    const int host = self.rank() / 2;
    const auto world =
        meet(point.connect(self.rank()), placement, soon(), "host" + std::to_string(host));
    const auto clock = [&] { return read_steady_clock() + ahead.at(host); };
    const auto measured = align_clocks(world, "test", soon(), clock);
    if (host == 0) {
      EXPECT_EQ(measured.offset, 0ns);
      EXPECT_EQ(measured.error, 0ns);
    } else {
      EXPECT_LE(std::chrono::abs(measured.offset + ahead.at(host)), measured.error);
      EXPECT_GT(measured.error, 0ns);
      EXPECT_LT(measured.error, 1s);  // the messages are local
    }
    self.barrier(soon());
  });
}

TEST(HostClocks, OnOneHostTheOffsetIsZero) {
  const auto alone = align_clocks(World::alone(), "test", soon());
  EXPECT_EQ(alone.offset, 0ns);
  EXPECT_EQ(alone.error, 0ns);
}

}  // namespace
}  // namespace lockstep
