// Many operations in flight, waited for in any order, in several groups of one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

using Calls = std::vector<std::unique_ptr<CheckedCall>>;

INSTANTIATE_TEST_SUITE_P(Threads, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Values(1, 2, 3, 5)));
INSTANTIATE_TEST_SUITE_P(ThreadsMappedApart, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::apart),
                                            ::testing::Values(3)));
INSTANTIATE_TEST_SUITE_P(Processes, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 4)));

// A permutation of [0, count), different on each rank.
std::vector<std::size_t> shuffled(std::size_t count, int rank) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  RandomStream random({11, random_purpose("order")}, static_cast<std::uint64_t>(rank), 0);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

Call some_call(std::uint64_t seed) {
  return {.kind = kDataCollectives[seed % kDataCollectives.size()],
          .dtype = kDTypes[seed % kDTypes.size()],
          .count = static_cast<std::int64_t>(seed * 37 % 400)};
}

TEST_P(GroupTest, CallsAreWaitedForInAnyOrder) {
  run_group(setting(), [](Group& group) {
    Calls calls;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      calls.push_back(std::make_unique<CheckedCall>(group, some_call(seed), Form::apart,
                                                    std::span<std::byte>{}, seed));
    }
    for (const auto i : shuffled(calls.size(), group.rank())) calls[i]->wait();
  });
}

TEST_P(GroupTest, MoreCallsThanRecordsCanBeStarted) {
  run_group(setting(), [](Group& group) {
    Calls calls;
    for (std::uint64_t seed = 0; seed < 3 * kMaxCallsInFlight; ++seed) {
      // The last rank is late, then early: all records of the others are in use.
      if (group.rank() == group.size() - 1 && seed % 50 == 10) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      calls.push_back(std::make_unique<CheckedCall>(group, some_call(seed), Form::apart,
                                                    std::span<std::byte>{}, seed));
    }
    for (auto& call : calls) call->wait();
  });
}

// A rank without a free record continues as soon as the others do, not at the end of its sleep of
// 50 ms. On a busy machine some starts take that long for other reasons, but not half of them.
TEST_P(GroupTest, WaitingForAFreeRecordCostsNoSleep) {
  run_group(setting(), [](Group& group) {
    std::vector<std::shared_ptr<Operation>> barriers;
    std::size_t num_slept = 0;
    for (std::size_t i = 0; i < 3 * kMaxCallsInFlight; ++i) {
      if (group.rank() == group.size() - 1) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      const auto begin = std::chrono::steady_clock::now();
      barriers.push_back(group.start({.kind = Collective::barrier}, nullptr));
      const auto took = std::chrono::steady_clock::now() - begin;
      if (took >= std::chrono::milliseconds(50)) ++num_slept;
    }
    for (auto& barrier : barriers) group.wait(*barrier);
    EXPECT_LT(num_slept, kMaxCallsInFlight) << "of twice as many that found no free record";
  });
}

TEST_P(GroupTest, DoneAdvancesAndGivesTheCorrectResult) {
  run_group(setting(), [](Group& group) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      CheckedCall call(group, some_call(seed), Form::apart, {}, seed);
      while (!group.done(call.operation())) std::this_thread::yield();
      call.expect_correct();
    }
  });
}

// Without threads of one mapping: their group does not support split().
class SplitGroupTest : public GroupTest {};
INSTANTIATE_TEST_SUITE_P(ThreadsMappedApart, SplitGroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::apart),
                                            ::testing::Values(2, 4)));
INSTANTIATE_TEST_SUITE_P(Processes, SplitGroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 3, 4)));

// Each call has several phases on every rank, so a wait in one group must advance the others.
TEST_P(SplitGroupTest, GroupsAreWaitedForInDifferentOrderOnDifferentRanks) {
  run_group(setting(), [](Group& group) {
    std::vector<std::shared_ptr<Group>> groups;
    for (int i = 0; i < 4; ++i) groups.push_back(group.split(0, i % 2 == 0 ? 0 : -group.rank()));
    for (std::uint64_t round = 0; round < 3; ++round) {
      Calls calls;
      for (std::uint64_t i = 0; i < groups.size(); ++i) {
        const Call call{.kind = Collective::all_reduce, .dtype = DType::int32, .count = 100'000};
        calls.push_back(std::make_unique<CheckedCall>(*groups[i], call, Form::apart,
                                                      std::span<std::byte>{}, 10 * round + i));
      }
      for (const auto i : shuffled(calls.size(), group.rank())) calls[i]->wait();
    }
  });
}

}  // namespace
}  // namespace lockstep
