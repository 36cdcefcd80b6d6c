// The threads that serve stripes at the same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <set>
#include <thread>
#include <vector>

#include "lockstep/tcp/stripe_threads_internal.h"

namespace lockstep {
namespace {

TEST(StripeThreads, ThereIsOnePerStripeAtMostAsManyAsAreAllowed) {
  EXPECT_EQ(extra_threads(1, 16), 0);
  EXPECT_EQ(extra_threads(4, 16), 3);
  EXPECT_EQ(extra_threads(4, 4), 3);
  EXPECT_EQ(extra_threads(4, 2), 1);
  EXPECT_EQ(extra_threads(4, 1), 0);
  EXPECT_EQ(extra_threads(4, 0), 0);  // not known yet
}

// Each turn ends before run() returns: what it has written is read without a lock.
TEST(StripeThreads, EveryTurnIsTakenOnceAndHasEndedWhenRunReturns) {
  for (const std::size_t extra : {0, 1, 3}) {
    StripeThreads threads;
    threads.grow(extra);
    EXPECT_EQ(threads.is_empty(), extra == 0);
    std::vector<int> turns(16);
    for (int round = 1; round <= 2000; ++round) {
      const std::size_t count = static_cast<std::size_t>(round) % (turns.size() + 1);
      std::fill(turns.begin(), turns.end(), 0);
      threads.run(count, [&](std::size_t index) { ++turns[index]; });
      for (std::size_t i = 0; i < turns.size(); ++i) ASSERT_EQ(turns[i], i < count ? 1 : 0);
    }
  }
}

// Turns that wait for each other end only if each has a thread.
TEST(StripeThreads, TurnsRunAtTheSameTime) {
  StripeThreads threads;
  threads.grow(2);
  threads.grow(1);
  std::latch all(3);
  std::vector<std::thread::id> ids(3);
  threads.run(3, [&](std::size_t index) {
    ids[index] = std::this_thread::get_id();
    all.arrive_and_wait();
  });
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 3U);
}

TEST(StripeThreads, TheirProcessorTimeIsCounted) {
  StripeThreads threads;
  threads.grow(1);
  std::latch both(2);
  const auto caller = std::this_thread::get_id();
  double after = 0;
  threads.run(2, [&](std::size_t) {
    both.arrive_and_wait();
    if (std::this_thread::get_id() == caller) return;
    while (after < 0.01) after = threads.seconds();
  });
  EXPECT_GE(after, 0.01);
  EXPECT_EQ(StripeThreads().seconds(), 0);
}

}  // namespace
}  // namespace lockstep
