// What a call on a device costs its host: the functions of the device and of NCCL that it calls,
// the queries of its event, and the wake-ups of the watcher, counted on doubles. A bucket of Ddp is
// one such call, and a small model's step is bound by its host.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/fabric/test_group_internal.h"
#include "lockstep/gpu/watcher.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;

// Does what the thread of a watcher does before it sleeps, when the test says so.
class CountedWatcher final : public Watcher {
 public:
  void add(WatchedGroup& group) override { group_ = &group; }
  void remove(WatchedGroup& /*group*/) noexcept override { group_ = nullptr; }
  void wake() noexcept override { ++wakes; }
  // Returns whether it sleeps until the next wake().
  bool look() {
    auto* const group = group_.load();
    return !group->next_deadline() && group->may_sleep();
  }

  static std::shared_ptr<CountedWatcher>& instance() {
    static std::shared_ptr<CountedWatcher> instance;
    return instance;
  }
  std::atomic<int> wakes = 0;

 private:
  std::atomic<WatchedGroup*> group_ = nullptr;
};

class CallCost : public ::testing::Test {
 protected:
  // A group of ranks with a GPU each over NCCL; after each call of `count`, counts() begins anew.
  void run(int size, const GroupBody& body) {
    CountedWatcher::instance() = std::make_shared<CountedWatcher>();
    SuiteDevice::set(SuiteDevice::Setting{
        .backend = BackendKind::nccl,
        .device = {.num_devices = size},
        .stage_bytes = 1U << 20,
        .watcher = []() -> std::shared_ptr<Watcher> { return CountedWatcher::instance(); }});
    const auto count = [this](std::string_view function) {
      const std::lock_guard lock(mutex_);
      ++counts_[std::string(function)];
      return DeviceStatus();
    };
    SuiteDevice::get_double().set_fault(count);
    SuiteDevice::nccl()->set_fault(count);
    const auto memory = std::make_shared<ThreadMemory>();
    testing::run_ranks_as_threads(size, [&](testing::Rank& self) {
      const auto group =
          thread_group(memory, self.rank(), size, {.timeout = 30s}, {}, &SuiteDevice::connect);
      body(*group);
    });
    SuiteDevice::set(std::nullopt);
    CountedWatcher::instance().reset();
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    counts_.clear();
  }
  [[nodiscard]] int count_of(const std::string& function) {
    const std::lock_guard lock(mutex_);
    return counts_[function];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;  // mutex_; by function, of all ranks
};

Call average_of(const Group& group, std::span<float> values) {
  return {.kind = Collective::all_reduce,
          .dtype = DType::float32,
          .op = ReduceOp::weighted_average,
          .count = static_cast<std::int64_t>(values.size()),
          .name = "gradients",
          .input = std::as_bytes(values),
          .output = std::as_writable_bytes(values),
          .device = SuiteDevice::device_of(group),
          .stream = SuiteDevice::stream_of(group),
          .weight = 1};
}

// A size without a remainder, as that of a bucket: whole lines per rank.
TEST_F(CallCost, ABucketOverNcclIsOneReductionAndTwoEventsOnTheGroupsStream) {
  for (const int size : {1, 2, 4}) {
    SCOPED_TRACE(size);
    run(size, [&](Group& group) {
      std::vector<float> values(static_cast<std::size_t>(64 * size * 3), 1.0F);
      const auto average = [&] {
        const auto operation = group.start(average_of(group, values), nullptr);
        group.make_wait(*operation, SuiteDevice::stream_of(group));
        finish(group, *operation);
        finish(group, *group.start({.kind = Collective::barrier}, nullptr));
      };
      average();  // connects
      if (group.rank() == 0) clear();
      finish(group, *group.start({.kind = Collective::barrier}, nullptr));
      average();
      if (group.rank() != 0) return;
      EXPECT_EQ(count_of("reduce"), size);
      EXPECT_EQ(count_of("copy"), 0);
      EXPECT_EQ(count_of("make_event"), 0);
      EXPECT_EQ(count_of("record"), 2 * size);     // ready, done
      EXPECT_EQ(count_of("make_wait"), 2 * size);  // of the group's stream, of the caller's
      EXPECT_EQ(count_of("start_group"), (size == 1 ? 1 : 2) * size);
      EXPECT_EQ(count_of("all_gather"), size);
      EXPECT_EQ(count_of("all_reduce"), 0);
    });
  }
}

TEST_F(CallCost, AnEventThatHasPassedIsNotQueriedAgain) {
  run(1, [&](Group& group) {
    std::vector<float> values(64, 1.0F);
    const auto operation = group.start(average_of(group, values), nullptr);
    group.synchronize(*operation);
    clear();
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(group.done(*operation));
    EXPECT_EQ(count_of("query_event"), 0);
  });
}

// A group that makes a call in every interval wakes the watcher once; one that has paused wakes it
// again.
TEST_F(CallCost, TheWatcherIsWokenOnceWhileCallsFollowEachOther) {
  run(1, [&](Group& group) {
    auto& watcher = *CountedWatcher::instance();
    std::vector<float> values(64, 1.0F);
    const auto average = [&] {
      group.synchronize(*group.start(average_of(group, values), nullptr));
    };
    average();
    EXPECT_EQ(watcher.wakes, 1);
    for (int i = 0; i < 20; ++i) {
      EXPECT_FALSE(watcher.look());
      for (int bucket = 0; bucket < 3; ++bucket) average();
    }
    EXPECT_EQ(watcher.wakes, 1);
    EXPECT_FALSE(watcher.look());
    EXPECT_TRUE(watcher.look());  // no call since
    average();
    EXPECT_EQ(watcher.wakes, 2);
    EXPECT_FALSE(watcher.look());
  });
}

}  // namespace
}  // namespace lockstep
