#include "lockstep/rendezvous/call_size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "lockstep/machine/links.h"

namespace lockstep {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

// The time of the comment in the header.
double seconds(std::size_t total, std::size_t bytes, const NetworkLink& link) {
  return static_cast<double>(total) / static_cast<double>(bytes) * 4 *
             (link.latency + link.message) +
         static_cast<double>(bytes) / link.bandwidth;
}

TEST(CallSize, IsThePowerOfTwoNearTheLeastTime) {
  for (const double bandwidth : {1.25e8, 1.25e9, 1.25e10}) {
    for (const double latency : {5e-6, 25e-6, 100e-6}) {
      const NetworkLink link{.latency = latency, .bandwidth = bandwidth};
      for (std::size_t total = kMiB; total <= 4096 * kMiB; total *= 4) {
        const auto chosen = best_call_bytes(total, link);
        if (chosen == 256 * kKiB || chosen == 25 * kMiB) continue;
        EXPECT_TRUE(std::has_single_bit(chosen));
        EXPECT_LT(seconds(total, chosen, link), seconds(total, chosen / 2, link));
        EXPECT_LT(seconds(total, chosen, link), seconds(total, chosen * 4, link));
      }
    }
  }
}

TEST(CallSize, FollowsTheLink) {
  const std::size_t gradients = 3'400'000;  // of a small GPT
  EXPECT_EQ(best_call_bytes(gradients, {}), 512 * kKiB);
  EXPECT_EQ(best_call_bytes(gradients, {.bandwidth = 1.25e8}), 256 * kKiB) << "1 Gbit/s";
  EXPECT_EQ(best_call_bytes(400 * kMiB, {}), 4 * kMiB);
  EXPECT_EQ(best_call_bytes(400 * kMiB, {.latency = 1e-3, .bandwidth = 1e10}), 25 * kMiB);
}

TEST(CallSize, HasLimits) {
  EXPECT_EQ(best_call_bytes(0, {}), 256 * kKiB);
  EXPECT_EQ(best_call_bytes(std::numeric_limits<std::size_t>::max(), {}), 25 * kMiB);
}

TEST(BlockSize, FollowsTheMeasuredLink) {
  const NetworkLink slow{.latency = 50e-6, .bandwidth = 1.25e8, .is_measured = true};
  const NetworkLink fast{.latency = 50e-6, .bandwidth = 1e10, .is_measured = true};
  for (const std::size_t bytes : {16 * kMiB, 25 * kMiB, 64 * kMiB}) {
    EXPECT_EQ(block_bytes(slow, bytes, 4), measured_chunk(bytes, slow.latency, slow.bandwidth));
  }
  EXPECT_EQ(block_bytes(slow, 25 * kMiB, 4), 512 * kKiB);
  EXPECT_EQ(block_bytes(fast, 25 * kMiB, 4), kMiB);
}

TEST(BlockSize, FollowsTheTeachingRuleWhereNothingWasMeasured) {
  NetworkLink link;
  for (const auto each : {LinkClass::ethernet, LinkClass::infiniband, LinkClass::nvlink}) {
    link.link_class = each;
    for (const std::int64_t count : {std::int64_t{1} << 20, std::int64_t{1} << 22}) {
      const auto bytes = static_cast<std::size_t>(count) * 4;
      const auto chunk = static_cast<std::size_t>(unmeasured_chunk(count, each)) * 4;
      EXPECT_EQ(block_bytes(link, bytes, 4), std::min(chunk, kMiB)) << to_string(each);
    }
  }
  link.link_class = LinkClass::ethernet;
  EXPECT_EQ(block_bytes(link, 25 * kMiB, 4), 256 * kKiB) << "64 Ki elements";
  EXPECT_EQ(block_bytes(link, 25 * kMiB, 8), 512 * kKiB);
}

TEST(BlockSize, HasLimits) {
  const NetworkLink near{.latency = 1e-6, .bandwidth = 1e8, .is_measured = true};
  EXPECT_EQ(block_bytes(near, 2 * kMiB, 4), 256 * kKiB);
  EXPECT_EQ(block_bytes({}, 25 * kMiB, 2), 256 * kKiB);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{4}, kMiB}) {
    EXPECT_EQ(block_bytes({}, bytes, 4), kMiB) << "not divided";
  }
  for (std::size_t bytes = kMiB + 4; bytes < 20 * kMiB; bytes += 100'004) {
    EXPECT_EQ(block_bytes({}, bytes, 4) % 64, 0U);
  }
}

}  // namespace
}  // namespace lockstep
