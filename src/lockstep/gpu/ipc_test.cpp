// ipc over doubles: what only ranks that share a GPU do. No stream waits for an event whose work
// waits for another process, one rank reduces for all, and a rank that others wait for is named.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_group_internal.h"
#include "lockstep/gpu/end_word_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class IpcTest : public ::testing::Test {
 protected:
  static void run_ranks(int size, const GroupBody& body) {
    const auto memory = std::make_shared<ThreadMemory>();
    testing::run_ranks_as_threads(size, [&](testing::Rank& self) {
      body(*thread_group(memory, self.rank(), size, {.timeout = 30s}, {}, &SuiteDevice::connect));
    });
  }
  void SetUp() override { set_suite_device(TransportKind::ipc); }
  void TearDown() override { SuiteDevice::set(std::nullopt); }
};

Call sum_of(const Group& group, std::span<std::byte> span) {
  return on_device(group, {.kind = Collective::all_reduce,
                           .count = static_cast<std::int64_t>(span.size()),
                           .input = span,
                           .output = span});
}

void meet(Group& group) { finish(group, *group.start({.kind = Collective::barrier}, nullptr)); }

TEST_F(IpcTest, AnAllReduceIsOneReductionAndTheCallersStreamsWaitForWords) {
  constexpr int kSize = 3;
  std::mutex mutex;
  std::map<std::string, int, std::less<>> counts;
  SuiteDevice::get_double().set_fault([&](std::string_view function) {
    const std::lock_guard lock(mutex);
    ++counts[std::string(function)];
    return DeviceStatus();
  });
  run_ranks(kSize, [&](Group& group) {
    const auto memory = allocate_on_device(group, 5000);
    for (const bool is_counted : {false, true}) {
      meet(group);
      if (group.rank() == 0 && is_counted) {
        const std::lock_guard lock(mutex);
        counts.clear();
      }
      meet(group);
      const auto operation = group.start(sum_of(group, memory->bytes()), nullptr);
      group.make_wait(*operation, SuiteDevice::stream_of(group));
      meet(group);
    }
    if (group.rank() == 0) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(counts["reduce"], 1);
      EXPECT_EQ(counts["make_wait"], kSize);         // of the group's streams, for the caller's
      EXPECT_EQ(counts["word_actions"], 4 * kSize);  // before and after, the end, the caller's wait
    }
    meet(group);
    EXPECT_TRUE(SuiteDevice::get()->synchronize(SuiteDevice::stream_of(group)).ok());
  });
}

// Three ranks, several calls enqueued; the input of one rank is not ready. Whichever rank loses
// patience first names that one, which may be itself.
TEST_F(IpcTest, TheRankWhoseInputIsNotReadyIsNamed) {
  constexpr int kSize = 3;
  static std::array<std::byte, kSize> bytes;  // a device may still write to it after a failure
  for (int late = 0; late < kSize; ++late) {
    for (int impatient = 0; impatient < kSize; ++impatient) {
      SCOPED_TRACE(std::to_string(impatient) + " waits for " + std::to_string(late));
      set_suite_device(TransportKind::ipc);
      const auto is_ready = std::make_shared<std::atomic<bool>>(false);
      run_ranks(kSize, [&](Group& group) {
        auto& byte = bytes[static_cast<std::size_t>(group.rank())];
        finish(group, *group.start(sum_of(group, {&byte, 1}), nullptr));
        if (group.rank() == late) {
          SuiteDevice::get_double().enqueue(
              SuiteDevice::stream_of(group), [is_ready] { return is_ready->load(); }, [] {}, true);
        }
        const std::array operations{group.start(sum_of(group, {&byte, 1}), nullptr),
                                    group.start(sum_of(group, {&byte, 1}), nullptr)};
        for (const auto& operation : operations) group.wait(*operation);  // enqueued
        meet(group);
        const auto patience = group.rank() == impatient ? 50ms : 20'000ms;
        try {
          finish(group, *operations[0], Deadline::after(patience));
          ADD_FAILURE() << "the call has ended";
        } catch (const PeerError& error) {
          EXPECT_EQ(error.rank(), late) << error.what();
        }
        is_ready->store(true);
        SuiteDevice::get_double().poke();
      });
    }
  }
}

// Ends are awaited in order, by streams that are behind them and by streams that are not.
TEST(EndWord, AStreamContinuesWhenTheEndIsWritten) {
  const auto functions = std::make_shared<DeviceDouble>(DoubleOptions{});
  const auto context = std::make_shared<DeviceContext>(functions, 0);
  EndWord end(context);
  std::atomic<bool> is_open = false;
  std::atomic<int> reached = 0;
  functions->enqueue(
      context->stream(), [&] { return is_open.load(); }, [] {}, true);
  const auto first = end.write(context->stream());
  const auto second = end.write(context->stream());
  std::array<void*, 2> streams{};
  for (auto*& stream : streams) ASSERT_TRUE(functions->make_stream(stream).ok());
  end.make_wait(streams[0], second);
  end.make_wait(streams[1], first);
  for (auto* stream : streams) functions->enqueue(stream, nullptr, [&] { ++reached; });
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(reached, 0);
  is_open = true;
  for (auto* stream : streams) ASSERT_TRUE(functions->synchronize(stream).ok());
  EXPECT_EQ(reached, 2);
  end.make_wait(streams[0], second);  // long past
  ASSERT_TRUE(functions->synchronize(streams[0]).ok());
}

// A program may end its group while its own stream has not come to the wait yet.
TEST(EndWord, MemoryThatAStreamStillWaitsForIsKept) {
  for (const bool has_resumed : {true, false}) {
    const auto functions = std::make_shared<DeviceDouble>(DoubleOptions{});
    std::atomic<int> releases = 0;
    functions->set_fault([&](std::string_view function) {
      if (function == "release_host") ++releases;
      return DeviceStatus();
    });
    const auto context = std::make_shared<DeviceContext>(functions, 0);
    void* stream = nullptr;
    ASSERT_TRUE(functions->make_stream(stream).ok());
    std::atomic<bool> is_open = has_resumed;
    {
      EndWord end(context);
      const auto number = end.write(context->stream());
      ASSERT_TRUE(functions->synchronize(context->stream()).ok());
      functions->enqueue(
          stream, [&] { return is_open.load(); }, [] {}, true);
      end.make_wait(stream, number);
      if (has_resumed) {
        ASSERT_TRUE(functions->synchronize(stream).ok());
      }
    }
    EXPECT_EQ(releases, has_resumed ? 1 : 0);
    is_open = true;
    ASSERT_TRUE(functions->synchronize(stream).ok());
  }
}

}  // namespace
}  // namespace lockstep
