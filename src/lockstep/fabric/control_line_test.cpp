#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/fabric/control_line_internal.h"
#include "lockstep/fabric/shared_memory.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Rank;
using Clock = std::chrono::steady_clock;

struct Lines {
  explicit Lines(int ranks) : memory(ControlLines::bytes_for(ranks)), size(ranks) {}
  [[nodiscard]] ControlLines of(int rank) const { return {memory.bytes().data(), rank, size}; }

  SharedMemory memory;
  int size;
};

TEST(ControlLine, ShowsHowFarEachRankIs) {
  const Lines lines(2);
  auto first = lines.of(0);
  auto second = lines.of(1);
  const Condition entered{Condition::Of::entered, 1};
  EXPECT_EQ(first.lagging(entered), 0);
  first.enter({.number = 1, .input = {3, 64}}, 77);
  EXPECT_EQ(second.lagging(entered), 1);
  EXPECT_EQ(second.slot(0, 1).input, (Location{3, 64}));
  EXPECT_EQ(second.mark(0, 1), 77U);
  second.enter({.number = 1}, 77);
  EXPECT_EQ(first.lagging(entered), std::nullopt);
  first.raise_steps(5);
  first.complete(1);
  EXPECT_EQ(second.counter(0, Condition::Of::steps), 5U);
  EXPECT_EQ(second.counter(0, Condition::Of::completed), 1U);
  EXPECT_TRUE(first.lags(1, {Condition::Of::completed, 1}));
}

TEST(ControlLine, ALateRankFindsTheSlotAndSeesThatTheMarkIsAnothers) {
  const Lines lines(2);
  auto ahead = lines.of(0);
  for (std::uint64_t number = 1; number <= 10; ++number) {
    ahead.enter({.number = number}, 100 + number);
  }
  const auto late = lines.of(1);
  EXPECT_EQ(late.slot(0, 2).number, 2U);
  EXPECT_EQ(late.mark(0, 10), 110U);
  EXPECT_NE(late.mark(0, 2), 102U);
}

TEST(ControlLine, AFailureIsReadByOthersAndSpoilsTheMarks) {
  const Lines lines(2);
  auto failing = lines.of(0);
  failing.enter({.number = 1}, 9);
  EXPECT_EQ(failing.standing(0), Standing::joining);
  failing.fail({1, std::string(3000, 'x')});
  const auto other = lines.of(1);
  EXPECT_EQ(other.standing(0), Standing::failed);
  EXPECT_EQ(other.cause(0).culprit, 1);
  EXPECT_EQ(other.cause(0).text, std::string(kCauseBytes - 1, 'x'));
  EXPECT_EQ(other.mark(0, 1), kFailedMark);
}

TEST(ControlLine, SleepReturnsAtOnceWhenThereIsNothingToWaitFor) {
  const Lines lines(2);
  const auto begin = Clock::now();
  lines.of(0).sleep(
      1, [] { return true; }, Deadline::after(10s));
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(ControlLine, SleepEndsAtItsDeadline) {
  const Lines lines(2);
  const auto begin = Clock::now();
  lines.of(0).sleep(
      1, [] { return false; }, Deadline::after(30ms));
  EXPECT_GE(Clock::now() - begin, 25ms);
  EXPECT_LT(Clock::now() - begin, 5s);
}

// Two ranks wait for each other by sleeping alone. One lost wake-up would cost 20 s.
TEST(ControlLine, NoRingIsLost) {
  const Lines lines(2);
  constexpr std::uint64_t kRounds = 20'000;
  const auto begin = Clock::now();
  testing::run_ranks_as_threads(2, [&](Rank& self) {
    auto own = lines.of(self.rank());
    const int other = 1 - self.rank();
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      own.raise_steps(round);
      const Condition condition{Condition::Of::steps, round};
      while (own.lags(other, condition)) {
        own.sleep(
            other, [&] { return !own.lags(other, condition); }, Deadline::after(20s));
      }
    }
  });
  EXPECT_LT(Clock::now() - begin, 20s);
}

// The same with several sleepers at one doorbell.
TEST(ControlLine, OneRingWakesAllWhoWait) {
  const Lines lines(4);
  constexpr std::uint64_t kRounds = 3'000;
  const auto begin = Clock::now();
  testing::run_ranks_as_threads(4, [&](Rank& self) {
    auto own = lines.of(self.rank());
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const Condition condition{Condition::Of::completed, round};
      const int leader = static_cast<int>(round % 4);
      if (self.rank() == leader) own.complete(round);
      while (own.lags(leader, condition)) {
        own.sleep(
            leader, [&] { return !own.lags(leader, condition); }, Deadline::after(20s));
      }
    }
  });
  EXPECT_LT(Clock::now() - begin, 20s);
}

}  // namespace
}  // namespace lockstep
