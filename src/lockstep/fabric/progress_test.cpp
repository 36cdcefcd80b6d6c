// Many operations in flight, waited for in any order, in several groups of one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
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

// Rank 1 begins the first call, which sends its input, and then does nothing until rank 0 has begun
// the second: rank 0 has every input and awaits only results. The thread of rank 1's network may
// complete the first call meanwhile, so several rounds are tried.
TEST(ProgressBetweenHosts, ACallBeginsWhileResultsOfThePreviousOneAreMissing) {
  constexpr int kMostRounds = 100;
  const GroupSetting setting{.transport = TransportKind::tcp, .ranks = Ranks::apart, .size = 2};
  std::atomic<int> stage = 0;
  std::atomic<bool> was_seen = false;
  const auto reach = [&](int next) {
    stage = next;
    stage.notify_all();
  };
  const auto await = [&](int next) {
    for (int now = stage; now < next; now = stage) stage.wait(now);
  };
  run_group(setting, [&](Group& group) {
    std::vector<std::vector<float>> data(2);
    const auto start = [&](std::size_t i) {
      data[i].assign(1U << 18, 1);
      const auto bytes = std::as_writable_bytes(std::span(data[i]));
      return group.start({.kind = Collective::all_reduce,
                          .dtype = DType::float32,
                          .count = static_cast<std::int64_t>(data[i].size()),
                          .input = bytes,
                          .output = bytes},
                         nullptr);
    };
    const auto advance_until_begun = [&](const Operation& operation) {
      const auto limit = Deadline::after(std::chrono::seconds(20));
      while (!operation.begun && !limit.expired()) {
        group.advance();
        std::this_thread::yield();
      }
      EXPECT_TRUE(operation.begun);
    };
    for (int round = 0; round < kMostRounds && !was_seen; ++round) {
      const int base = 3 * round;
      if (group.rank() == 1) await(base + 1);
      const auto first = start(0);
      if (group.rank() == 0) {
        reach(base + 1);
        await(base + 2);
      }
      const auto second = start(1);
      advance_until_begun(group.rank() == 0 ? *second : *first);
      if (group.rank() == 0 && !first->done) was_seen = true;
      reach(base + (group.rank() == 0 ? 3 : 2));
      await(base + 3);
      for (const auto& operation : {first, second}) group.wait(*operation);
      for (const auto& each : data) EXPECT_EQ(each, std::vector<float>(each.size(), 2));
    }
  });
  EXPECT_TRUE(was_seen);
}

// Without threads of one mapping: their group does not support split().
class SplitGroupTest : public GroupTest {};
INSTANTIATE_TEST_SUITE_P(ThreadsMappedApart, SplitGroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::apart),
                                            ::testing::Values(2, 4)));
INSTANTIATE_TEST_SUITE_P(Processes, SplitGroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 3, 4)));
INSTANTIATE_TEST_SUITE_P(DeviceProcesses, SplitGroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 3)));

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

// A rank that only asks whether a call of one group is done begins its calls of the others.
TEST_P(SplitGroupTest, ALoopAroundDoneBeginsTheCallsOfOtherGroups) {
  run_group(setting(), [](Group& group) {
    const auto other = group.split(0, group.rank());
    Calls calls;
    const auto start = [&](std::uint64_t seed) {
      const Call call{.kind = Collective::all_reduce, .dtype = DType::float32, .count = 2'000};
      calls.push_back(
          std::make_unique<CheckedCall>(group, call, Form::apart, std::span<std::byte>{}, seed));
    };
    if (group.rank() == 0) {
      for (std::uint64_t seed = 0; seed < 3; ++seed) start(seed);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        start(seed);
        calls.back()->wait();
      }
    }
    const auto end = other->start({.kind = Collective::barrier}, nullptr);
    while (!other->done(*end)) std::this_thread::yield();
    if (group.rank() == 0) {
      for (auto& call : calls) call->wait();
    }
  });
}

}  // namespace
}  // namespace lockstep
