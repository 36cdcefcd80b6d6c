#include "lockstep/base/ticks.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Ticks, AreTheTimeOfSteadyClock) {
  const auto anchor = TickAnchor::now();
  for (int i = 0; i < 20; ++i) {
    const auto before = Clock::now();
    const auto read = ticks();
    const auto after = Clock::now();
    // Both clocks have the same source, but the kernel adjusts the rate of steady_clock by up to
    // 500 parts per million; the anchor is at most 100 ms old.
    EXPECT_LE(before - 60us, anchor.steady(read));
    EXPECT_GE(after + 60us, anchor.steady(read));
    std::this_thread::sleep_for(5ms);
  }
}

TEST(Ticks, BeforeTheAnchorConvertToo) {
  const auto before = Clock::now();
  const auto read = ticks();
  const auto after = Clock::now();
  std::this_thread::sleep_for(10ms);
  const auto anchor = TickAnchor::now();
  EXPECT_LE(before - 20us, anchor.steady(read));
  EXPECT_GE(after + 20us, anchor.steady(read));
}

TEST(Ticks, NeverDecreaseInAThread) {
  auto last = ticks();
  for (int i = 0; i < 100'000; ++i) {
    const auto next = ticks();
    ASSERT_LE(last, next);
    last = next;
  }
}

}  // namespace
}  // namespace lockstep
