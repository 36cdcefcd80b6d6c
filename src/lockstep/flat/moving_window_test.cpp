#include "lockstep/flat/moving_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

const std::vector<std::int64_t> kSizes{0,
                                       1,
                                       16 << 10,
                                       (16 << 10) + 1,
                                       4 * (16 << 10),
                                       62 * (16 << 10),
                                       63 * (16 << 10),
                                       1 << 20,
                                       64 * (16 << 10),
                                       (64 << 20) - 1,
                                       64 << 20,
                                       (64 << 20) + 1,
                                       1'000'000'007};

TEST(MovingWindow, CoversAllBytesOfEachOfTwoMemoriesInTurn) {
  for (const auto bytes : kSizes) {
    for (const int memory : {0, 1}) {
      std::vector<ByteRange> seen;
      for (auto step = memory; step < 2 * kMovingWindows; step += 2) {
        seen.push_back(moving_window(bytes, step));
      }
      std::sort(seen.begin(), seen.end(),
                [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
      std::int64_t covered = 0;
      for (const auto& [begin, end] : seen) {
        EXPECT_LE(begin, covered) << bytes << ", memory " << memory;
        EXPECT_LE(begin, end);
        EXPECT_EQ(begin % 64 == 0 || begin == bytes, true);
        covered = std::max(covered, end);
      }
      EXPECT_EQ(covered, bytes) << "memory " << memory;
    }
  }
}

TEST(MovingWindow, IsASmallPartOfLargeMemory) {
  for (const auto bytes : kSizes) {
    std::int64_t largest = 0;
    for (int step = 0; step < kMovingWindows; ++step) {
      const auto [begin, end] = moving_window(bytes, step);
      largest = std::max(largest, end - begin);
    }
    EXPECT_LE(largest, std::max(kLeastWindowBytes, bytes / kMovingWindows + 64)) << bytes;
  }
}

}  // namespace
}  // namespace lockstep
