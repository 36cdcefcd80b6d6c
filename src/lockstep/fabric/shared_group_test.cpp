// One group used by several threads of a rank.
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

INSTANTIATE_TEST_SUITE_P(Threads, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Values(2, 3)));
INSTANTIATE_TEST_SUITE_P(Processes, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2)));
INSTANTIATE_TEST_SUITE_P(DeviceThreads, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Values(2, 3)));
INSTANTIATE_TEST_SUITE_P(DeviceProcesses, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2)));

// The messages of a suite, of one byte, in the memory that it tests.
void send(Group& group, Message message, std::byte& value) {
  message.count = 1;
  finish(group, *group.send(on_device(group, message), std::span(&value, 1), nullptr));
}
std::shared_ptr<Operation> start_to_receive(Group& group, Message message, std::byte& value) {
  message.count = 1;
  return group.receive(on_device(group, message), std::span(&value, 1), nullptr);
}

// One thread waits for an answer to the question that another thread sends.
TEST_P(GroupTest, AWaitingThreadDoesNotBlockASend) {
  run_group(setting(), [](Group& group) {
    const int other = 1 - group.rank();
    std::byte value{5};
    const auto begin = std::chrono::steady_clock::now();
    if (group.rank() == 0) {
      const auto answer = start_to_receive(group, {.peer = other, .tag = 2}, value);
      const std::jthread asks([&group, other] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        std::byte question{4};
        send(group, {.peer = other, .tag = 1}, question);
      });
      finish(group, *answer);
    } else if (group.rank() == 1) {
      finish(group, *start_to_receive(group, {.peer = other, .tag = 1}, value));
      send(group, {.peer = other, .tag = 2}, value);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  });
}

// Both threads sleep on the same counter of matched receives, and one of them drops it.
TEST_P(GroupTest, TwoThreadsReceiveWithOneTag) {
  run_group(setting(), [](Group& group) {
    constexpr int kMessages = 300;
    if (group.rank() == 1) {
      std::byte value{7};
      for (int i = 0; i < 2 * kMessages; ++i) {
        send(group, {.peer = 0, .tag = 5}, value);
      }
    } else if (group.rank() == 0) {
      const auto receive = [&group] {
        for (int i = 0; i < kMessages; ++i) {
          std::byte value{};
          finish(group, *start_to_receive(group, {.peer = 1, .tag = 5}, value));
          EXPECT_EQ(value, std::byte{7});
        }
      };
      const std::jthread first(receive);
      const std::jthread second(receive);
    }
  });
}

// One thread starts calls and another waits for them, as autograd and the training loop do.
TEST_P(GroupTest, CallsAreStartedByOneThreadAndWaitedForByAnother) {
  run_group(setting(), [](Group& group) {
    constexpr std::uint64_t kCalls = 300;
    std::mutex mutex;  // guards started
    std::vector<std::unique_ptr<CheckedCall>> started;
    std::jthread starts([&] {
      for (std::uint64_t i = 0; i < kCalls; ++i) {
        const Call call{
            .kind = Collective::all_reduce, .dtype = DType::int32, .count = i % 3 == 0 ? 2000 : 5};
        auto checked =
            std::make_unique<CheckedCall>(group, call, Form::apart, std::span<std::byte>{}, i);
        const std::lock_guard lock(mutex);
        started.push_back(std::move(checked));
      }
    });
    for (std::uint64_t next = 0; next < kCalls;) {
      std::unique_ptr<CheckedCall> call;
      {
        const std::lock_guard lock(mutex);
        if (next < started.size()) call = std::move(started[next]);
      }
      if (!call) {
        std::this_thread::yield();
        continue;
      }
      call->wait();
      ++next;
    }
  });
}

// Each of two threads uses its own group of the same world.
TEST_P(GroupTest, ThreadsWorkInDifferentGroupsAtOnce) {
  const auto setting = this->setting();
  if (setting.ranks == Ranks::threads) return;  // split() is unsupported there
  run_group(setting, [](Group& group) {
    const auto first = group.split(0, 0);
    const auto second = group.split(0, 0);
    const auto work = [](Group& part) {
      for (std::uint64_t i = 0; i < 200; ++i) {
        const Call call{.kind = Collective::all_reduce, .dtype = DType::int32, .count = 3000};
        CheckedCall(part, call, Form::apart, {}, i).wait();
      }
    };
    const std::jthread beside([&] { work(*second); });
    work(*first);
  });
}

}  // namespace
}  // namespace lockstep
