#include "lockstep/machine/links.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

TEST(Links, TheRateDecidesTheClass) {
  EXPECT_EQ(link_class_of(200.001e9), LinkClass::nvlink);
  EXPECT_EQ(link_class_of(200e9), LinkClass::infiniband);
  EXPECT_EQ(link_class_of(50.001e9), LinkClass::infiniband);
  EXPECT_EQ(link_class_of(50e9), LinkClass::ethernet);
  EXPECT_EQ(link_class_of(0), LinkClass::ethernet);
  EXPECT_EQ(link_class_of(std::numeric_limits<double>::quiet_NaN()), LinkClass::ethernet);
  EXPECT_EQ(to_string(LinkClass::infiniband), "infiniband");
}

TEST(Links, ChunksOfAnUnmeasuredLinkFollowTheTeachingRule) {
  struct Case {
    std::int64_t count, nvlink, infiniband, ethernet;
  };
  constexpr std::int64_t kKi = 1024;
  constexpr std::int64_t kMi = kKi * kKi;
  constexpr std::array kCases{
      Case{0, 1, 1, 1},  // at least 1, also where the division gives 0
      Case{1, 1, 1, 1},
      Case{3, 1, 1, 1},
      Case{8, 2, 1, 1},
      Case{16, 4, 2, 1},
      Case{1000, 250, 125, 62},
      Case{kMi, 256 * kKi, 128 * kKi, 64 * kKi},      // ethernet at its limit
      Case{2 * kMi, 512 * kKi, 256 * kKi, 64 * kKi},  // infiniband at its limit
      Case{4 * kMi, kMi, 256 * kKi, 64 * kKi},        // nvlink at its limit
      Case{1'000 * kMi, kMi, 256 * kKi, 64 * kKi},
  };
  for (const auto& each : kCases) {
    EXPECT_EQ(unmeasured_chunk(each.count, LinkClass::nvlink), each.nvlink) << each.count;
    EXPECT_EQ(unmeasured_chunk(each.count, LinkClass::infiniband), each.infiniband) << each.count;
    EXPECT_EQ(unmeasured_chunk(each.count, LinkClass::ethernet), each.ethernet) << each.count;
  }
}

// The time of k chunks, as the header states it, at the advised chunk and at half and twice of it.
TEST(Links, TheChunkOfAMeasuredLinkIsFasterThanHalfAndTwiceOfItsSize) {
  const auto time = [](double bytes, double chunk, double latency, double rate) {
    return (bytes / chunk + 1) * (latency + chunk / rate);
  };
  for (const double rate : {1.2e8, 1.2e9, 1.2e10}) {
    for (const double latency : {50e-6, 500e-6}) {
      constexpr std::size_t kBytes = 64U << 20;
      const auto chunk = static_cast<double>(measured_chunk(kBytes, latency, rate));
      const double best = time(kBytes, chunk, latency, rate);
      EXPECT_LE(best, time(kBytes, chunk / 2, latency, rate)) << rate << " " << latency;
      EXPECT_LE(best, time(kBytes, chunk * 2, latency, rate)) << rate << " " << latency;
    }
  }
}

TEST(Links, AChunkIsAtLeast16KiBAndAtMostTheArray) {
  EXPECT_EQ(measured_chunk(1U << 20, 1e-9, 1e6), 16U << 10);
  EXPECT_EQ(measured_chunk(1000, 1e-3, 1e9), 1000U);
  EXPECT_EQ(measured_chunk(1U << 20, 10, 1e12), 1U << 20);
}

TEST(Links, SeveralConnectionsAreAdvisedOnlyIfTheyAreFaster) {
  EXPECT_EQ(advised_stripes(1e9, 1.05e9, 4), 1);
  EXPECT_EQ(advised_stripes(1e9, 0.5e9, 4), 1);
  EXPECT_EQ(advised_stripes(1e9, 1.2e9, 4), 4);
}

}  // namespace
}  // namespace lockstep
