// The device plane over doubles: which operation may come first, one device per rank, refusals and
// failures of the device at every function, and a device that hangs.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class DevicePlaneTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  // Groups of `size` threads on one double; the first call on a device is that of the body.
  static void run_ranks(int size, const GroupBody& body, std::chrono::milliseconds timeout = 30s) {
    const auto memory = std::make_shared<ThreadMemory>();
    testing::run_ranks_as_threads(size, [&](testing::Rank& self) {
      body(*thread_group(memory, self.rank(), size, {.timeout = timeout}, {},
                         &SuiteDevice::connect));
    });
  }
  void SetUp() override { set_suite_device(GetParam()); }
  void TearDown() override { SuiteDevice::set(std::nullopt); }
};
INSTANTIATE_TEST_SUITE_P(Transports, DevicePlaneTest,
                         ::testing::Values(TransportKind::ipc, TransportKind::staged));

Call sum_of(const Group& group, std::span<std::byte> span) {
  return on_device(group, {.kind = Collective::all_reduce,
                           .count = static_cast<std::int64_t>(span.size()),
                           .input = span,
                           .output = span});
}

TEST_P(DevicePlaneTest, AnAllocationMayComeFirstAndItsMemoryIsZeroed) {
  run_ranks(3, [](Group& group) {
    const auto memory = allocate_on_device(group, 5000);
    EXPECT_EQ(std::count(memory->bytes().begin(), memory->bytes().end(), std::byte{0}), 5000);
    memory->bytes()[7] = std::byte{2};
    finish(group, *group.start(sum_of(group, memory->bytes()), nullptr));
    EXPECT_EQ(memory->bytes()[7], std::byte{6});
    EXPECT_EQ(group.device_kind(), GetParam() == TransportKind::ipc ? "ipc" : "staged");
  });
}

// Messages are not collective: they need no connection of the devices.
TEST_P(DevicePlaneTest, AMessageMayComeFirst) {
  run_ranks(3, [](Group& group) {
    std::vector<std::byte> bytes(100'000, std::byte{9});
    const Message message{.count = 100'000};
    auto outgoing = on_device(group, message);
    if (group.rank() == 0) {
      outgoing.peer = 1;
      finish(group, *group.send(outgoing, bytes, nullptr));
    } else if (group.rank() == 1) {
      std::vector<std::byte> found(100'000);
      finish(group, *group.receive(outgoing, found, nullptr));
      EXPECT_EQ(found, bytes);
    }
    EXPECT_EQ(group.device_kind(), "");
    std::byte byte{1};
    finish(group, *group.start(sum_of(group, {&byte, 1}), nullptr));
    EXPECT_EQ(byte, std::byte{3});
  });
}

TEST_P(DevicePlaneTest, CpuMemoryOfTheSameGroupUsesSharedMemory) {
  run_ranks(2, [](Group& group) {
    std::byte on_cpu{1};
    std::byte on_gpu{2};
    for (int i = 0; i < 4; ++i) {
      const auto first = group.start(sum_of(group, {&on_gpu, 1}), nullptr);
      auto call = sum_of(group, {&on_cpu, 1});
      call.device = {};
      group.wait(*group.start(call, nullptr));
      finish(group, *first);
    }
    EXPECT_EQ(on_cpu, std::byte{16});
    EXPECT_EQ(on_gpu, std::byte{32});
    EXPECT_EQ(group.kind(), "shm");
  });
}

TEST_P(DevicePlaneTest, ASecondDeviceOfARankIsRefused) {
  SuiteDevice::set(SuiteDevice::Setting{
      .backend = GetParam() == TransportKind::ipc ? BackendKind::ipc : BackendKind::staged,
      .device = {.num_devices = 1}});
  run_ranks(2, [](Group& group) {
    std::byte byte{1};
    auto call = sum_of(group, {&byte, 1});
    finish(group, *group.start(call, nullptr));
    call.device.index = 1;
    EXPECT_THROW((void)group.start(call, nullptr), UsageError);
    call.device.index = 0;
    finish(group, *group.start(call, nullptr));
    EXPECT_EQ(byte, std::byte{4});
  });
}

// Every function of the table fails once, on every call of it in turn: all ranks get an error, or
// the right result, and none hangs. A query may fail on a rank that waits for the result of its
// last call while the other rank already has it. So a barrier follows: a rank that failed does not
// enter it, and no other rank leaves it.
TEST_P(DevicePlaneTest, AFailureOfEveryFunctionReachesAllRanks) {
  std::set<std::string, std::less<>> functions;
  {
    std::mutex mutex;
    SuiteDevice::get_double().set_fault([&](std::string_view function) {
      const std::lock_guard lock(mutex);
      functions.emplace(function);
      return DeviceStatus();
    });
    run_ranks(2, [](Group& group) {
      const auto memory = allocate_on_device(group, 5000);
      finish(group, *group.start(sum_of(group, memory->bytes()), nullptr));
    });
  }
  EXPECT_GT(functions.size(), 10U);
  for (const auto& function : functions) {
    for (int skipped = 0; skipped < 6; ++skipped) {
      SCOPED_TRACE(function + ", call " + std::to_string(skipped));
      set_suite_device(GetParam());
      auto calls = std::make_shared<std::atomic<int>>(0);
      SuiteDevice::get_double().set_fault([function, skipped, calls](std::string_view name) {
        if (name != function || calls->fetch_add(1) != skipped) return DeviceStatus();
        return DeviceStatus::failed("scripted failure");
      });
      std::atomic<int> errors = 0;
      std::atomic<int> in_barrier = 0;
      run_ranks(
          2,
          [&](Group& group) {
            try {
              const auto memory = allocate_on_device(group, 5000);
              memory->bytes()[7] = std::byte{2};
              finish(group, *group.start(sum_of(group, memory->bytes()), nullptr));
              // The next call reports what has failed since.
              std::byte byte{1};
              finish(group, *group.start(sum_of(group, {&byte, 1}), nullptr));
              EXPECT_EQ(memory->bytes()[7], std::byte{4});
              EXPECT_EQ(byte, std::byte{2});
              ++in_barrier;
              finish(group, *group.start({.kind = Collective::barrier}, nullptr));
            } catch (const Error& error) {
              ++errors;
              // A rank whose start() throws leaves the group; the other one names it.
              const std::string text = error.what();
              EXPECT_TRUE(text.find("scripted failure") != std::string::npos ||
                          text.find("has left group") != std::string::npos)
                  << text;
            }
          },
          10s);
      // Functions of the end (destroy_stream, release, …) and polls of one rank may fail unseen, or
      // be seen when both ranks have all their results.
      EXPECT_TRUE(errors == 2 || in_barrier == 2) << errors << " of 2 ranks";
    }
  }
}

// Rank 0 has entered a call, and leaves before it has enqueued its part; the work of rank 1 waits
// for it. The host of rank 1 waits for the group, or for its stream, or leaves too.
TEST_P(DevicePlaneTest, ARankThatLeavesWithoutItsPartOfACallIsNamed) {
  enum class Wait { for_group, for_stream, for_nothing };
  for (const auto wait : {Wait::for_group, Wait::for_stream, Wait::for_nothing}) {
    set_suite_device(GetParam());
    const auto memory = std::make_shared<ThreadMemory>();
    std::array<std::byte, 2> bytes{};
    const auto begin = std::chrono::steady_clock::now();
    testing::run_ranks_as_threads(2, [&](testing::Rank& self) {
      auto group =
          thread_group(memory, self.rank(), 2, {.timeout = 60s}, {}, &SuiteDevice::connect);
      const auto call =
          sum_of(*group, std::span(bytes).subspan(static_cast<std::size_t>(self.rank()), 1));
      finish(*group, *group->start(call, nullptr));
      finish(*group, *group->start({.kind = Collective::barrier}, nullptr));
      auto* const stream = call.stream;
      if (self.rank() == 0) {
        const auto entered = group->start(call, nullptr);
        self.barrier(self.deadline());
        self.barrier(self.deadline());
        group.reset();
        return;
      }
      self.barrier(self.deadline());
      const auto operation = group->start(call, nullptr);
      const bool is_enqueued = operation->done;
      EXPECT_EQ(is_enqueued, GetParam() == TransportKind::ipc);
      if (is_enqueued && wait == Wait::for_stream) group->make_wait(*operation, stream);
      self.barrier(self.deadline());
      if (wait == Wait::for_nothing) return;
      if (wait == Wait::for_stream) {
        EXPECT_TRUE(SuiteDevice::get()->synchronize(stream).ok());
      }
      try {
        finish(*group, *operation);
        ADD_FAILURE() << "no error";
      } catch (const PeerError& error) {
        EXPECT_EQ(error.rank(), 0) << error.what();
        EXPECT_NE(std::string(error.what()).find("has left group"), std::string::npos)
            << error.what();
      }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  }
}

// A rank that has the result of a call keeps it when the device of another rank fails after that:
// its next call reports the failure.
TEST_P(DevicePlaneTest, AFailureAfterTheResultOfAnotherRankReachesTheNextCallOfThatRank) {
  std::atomic<bool> has_result = false;
  std::atomic<bool> fails = false;
  SuiteDevice::get_double().set_fault([&](std::string_view function) {
    return fails && function == "query_event" ? DeviceStatus::failed("scripted failure")
                                              : DeviceStatus();
  });
  run_ranks(2, [&](Group& group) {
    std::byte byte{1};
    const auto operation = group.start(sum_of(group, {&byte, 1}), nullptr);
    if (group.rank() == 0) {
      const auto deadline = Deadline::after(10s);
      while (!has_result && !deadline.expired()) group.advance();
      ASSERT_TRUE(has_result);
      fails = true;
      EXPECT_THROW(finish(group, *operation), Error);
      return;
    }
    finish(group, *operation);
    EXPECT_EQ(byte, std::byte{2});
    has_result = true;
    EXPECT_THROW(finish(group, *group.start({.kind = Collective::barrier}, nullptr)), PeerError);
  });
}

TEST_P(DevicePlaneTest, ADeviceThatHangsIsReportedAtTheDeadlineAndTheGroupEnds) {
  std::array<std::byte, 2> bytes{};  // the device may still write to it when the ranks have failed
  run_ranks(2, [&](Group& group) {
    auto& byte = bytes[static_cast<std::size_t>(group.rank())];
    finish(group, *group.start(sum_of(group, {&byte, 1}), nullptr));
    run(group, {.kind = Collective::barrier});
    SuiteDevice::get_double().freeze(true);
    std::string text;
    try {
      finish(group, *group.start(sum_of(group, {&byte, 1}), nullptr), Deadline::after(300ms));
    } catch (const PeerError& error) {
      text = error.what();
    }
    EXPECT_TRUE(text.find("device of rank") != std::string::npos ||
                text.find("timed out") != std::string::npos)
        << text;
    EXPECT_THROW((void)group.start(sum_of(group, {&byte, 1}), nullptr), PeerError);
    SuiteDevice::get_double().freeze(false);
  });
}

// Without a requested backend, ipc is tried, and staged is the fallback with the reason.
TEST(DeviceFallback, RefusedMappingsSelectStaged) {
  SuiteDevice::set(SuiteDevice::Setting{});
  static DeviceOptions automatic;
  automatic = SuiteDevice::options();
  automatic.backend.backend = std::nullopt;
  const auto memory = std::make_shared<ThreadMemory>();
  SuiteDevice::get_double().set_fault([](std::string_view function) {
    return function == "export_memory" ? DeviceStatus::failed("not permitted") : DeviceStatus();
  });
  testing::run_ranks_as_threads(3, [&](testing::Rank& self) {
    const auto group = thread_group(
        memory, self.rank(), 3, {.timeout = 30s}, {},
        +[](Connect host) { return connect_with_devices(std::move(host), automatic); });
    std::byte byte{1};
    finish(*group, *group->start(sum_of(*group, {&byte, 1}), nullptr));
    EXPECT_EQ(byte, std::byte{3});
    EXPECT_EQ(group->device_kind(), "staged");
    EXPECT_NE(group->device_reason().find("not permitted"), std::string::npos)
        << group->device_reason();
  });
  SuiteDevice::set(std::nullopt);
}

}  // namespace
}  // namespace lockstep
