#include "lockstep/rendezvous/call_size.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

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

}  // namespace
}  // namespace lockstep
