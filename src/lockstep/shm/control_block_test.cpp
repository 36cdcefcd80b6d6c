#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/net/shared_memory.h"
#include "lockstep/shm/control_block_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Rank;
using Clock = std::chrono::steady_clock;

struct Blocks {
  explicit Blocks(int ranks) : memory(ControlBlocks::bytes_for(ranks)), size(ranks) {}
  [[nodiscard]] ControlBlocks of(int rank) const { return {memory.bytes().data(), rank, size}; }

  SharedMemory memory;
  int size;
};

void enter(ControlBlocks& blocks, const CallRecord& record, std::uint64_t signature) {
  blocks.own_record(record.number) = record;
  blocks.enter(record.number, signature);
}

TEST(ControlBlocks, PublishesTheProgressOfEachRank) {
  const Blocks blocks(2);
  auto first = blocks.of(0);
  auto second = blocks.of(1);
  const Condition entered{Condition::Of::entered, 1};
  EXPECT_EQ(first.counters().lagging(entered), 0);
  enter(first, {.number = 1, .memory = {3, 64, 0}}, 77);
  EXPECT_EQ(second.counters().lagging(entered), 1);
  EXPECT_EQ(second.record(0, 1).memory, (MemoryWords{3, 64, 0}));
  EXPECT_EQ(second.signature(0, 1), 77U);
  enter(second, {.number = 1}, 77);
  EXPECT_EQ(first.counters().lagging(entered), std::nullopt);
  first.raise_phases(5);
  first.complete(1);
  EXPECT_EQ(second.counters().value(0, Condition::Of::phases), 5U);
  EXPECT_EQ(second.counters().value(0, Condition::Of::completed), 1U);
  EXPECT_TRUE(first.counters().lags(1, {Condition::Of::completed, 1}));
}

TEST(ControlBlocks, ALateRankFindsTheRecordAndDetectsThatTheSignatureWasOverwritten) {
  const Blocks blocks(2);
  auto ahead = blocks.of(0);
  for (std::uint64_t number = 1; number <= 10; ++number) {
    enter(ahead, {.number = number}, 100 + number);
  }
  const auto late = blocks.of(1);
  EXPECT_EQ(late.record(0, 2).number, 2U);
  EXPECT_EQ(late.signature(0, 10), 110U);
  EXPECT_NE(late.signature(0, 2), 102U);
}

TEST(ControlBlocks, AFailureIsPublishedAndInvalidatesTheSignatures) {
  const Blocks blocks(2);
  auto failing = blocks.of(0);
  enter(failing, {.number = 1}, 9);
  EXPECT_EQ(failing.standing(0), Standing::joining);
  failing.fail({1, std::string(3000, 'x')});
  const auto other = blocks.of(1);
  EXPECT_EQ(other.standing(0), Standing::failed);
  EXPECT_EQ(other.cause(0).culprit, 1);
  EXPECT_EQ(other.cause(0).text, std::string(kCauseBytes - 1, 'x'));
  EXPECT_EQ(other.signature(0, 1), kFailedSignature);
}

TEST(ControlBlocks, SleepReturnsAtOnceIfTheConditionIsFulfilled) {
  const Blocks blocks(2);
  const auto begin = Clock::now();
  blocks.of(0).sleep(
      1, [] { return true; }, Deadline::after(10s));
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(ControlBlocks, SleepEndsAtItsDeadline) {
  const Blocks blocks(2);
  const auto begin = Clock::now();
  blocks.of(0).sleep(
      1, [] { return false; }, Deadline::after(30ms));
  EXPECT_GE(Clock::now() - begin, 25ms);
  EXPECT_LT(Clock::now() - begin, 5s);
}

// Two ranks wait for each other only by sleeping. One lost wakeup would cost 20 s.
TEST(ControlBlocks, NoWakeupIsLost) {
  const Blocks blocks(2);
  constexpr std::uint64_t kRounds = 20'000;
  const auto begin = Clock::now();
  testing::run_ranks_as_threads(2, [&](Rank& self) {
    auto own = blocks.of(self.rank());
    const int other = 1 - self.rank();
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      own.raise_phases(round);
      const Condition condition{Condition::Of::phases, round};
      while (own.counters().lags(other, condition)) {
        own.sleep(
            other, [&] { return !own.counters().lags(other, condition); }, Deadline::after(20s));
      }
    }
  });
  EXPECT_LT(Clock::now() - begin, 20s);
}

// The same with several sleepers on one doorbell.
TEST(ControlBlocks, OneRingWakesAllSleepers) {
  const Blocks blocks(4);
  constexpr std::uint64_t kRounds = 3'000;
  const auto begin = Clock::now();
  testing::run_ranks_as_threads(4, [&](Rank& self) {
    auto own = blocks.of(self.rank());
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const Condition condition{Condition::Of::completed, round};
      const int leader = static_cast<int>(round % 4);
      if (self.rank() == leader) own.complete(round);
      while (own.counters().lags(leader, condition)) {
        own.sleep(
            leader, [&] { return !own.counters().lags(leader, condition); }, Deadline::after(20s));
      }
    }
  });
  EXPECT_LT(Clock::now() - begin, 20s);
}

}  // namespace
}  // namespace lockstep
