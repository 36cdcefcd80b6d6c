#include "lockstep/gpu/watcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// Ten times what a test needs on a busy machine.
constexpr std::chrono::seconds kLongEnough{30};
// So long that only what a test is about can wake the watcher.
constexpr std::chrono::hours kNever{1};

// A group whose state is set by the test.
class FakeGroup final : public WatchedGroup {
 public:
  explicit FakeGroup(std::vector<Peer> peers = {}) : peers_(std::move(peers)) {}

  [[nodiscard]] const std::vector<Peer>& peers() const noexcept override { return peers_; }
  [[nodiscard]] std::optional<Deadline> next_deadline() noexcept override {
    const std::lock_guard lock(mutex_);
    return deadline_;
  }
  [[nodiscard]] std::optional<Cause> find_cause() noexcept override {
    const std::lock_guard lock(mutex_);
    ++checks_;
    changed_.notify_all();
    if (deadline_ && deadline_->expired()) return Cause{1, "late"};
    return cause_;
  }
  void fail(const Cause& cause) noexcept override {
    const std::lock_guard lock(mutex_);
    failure_ = cause;
    ++failures_;
  }
  [[nodiscard]] bool release() noexcept override {
    const std::lock_guard lock(mutex_);
    ++releases_;
    const bool empty = releases_ >= releases_needed;
    if (empty) deadline_.reset();
    changed_.notify_all();
    return empty;
  }

  void enqueue(Deadline deadline) {
    const std::lock_guard lock(mutex_);
    deadline_ = deadline;
  }
  void set_cause(const Cause& cause) {
    const std::lock_guard lock(mutex_);
    cause_ = cause;
  }
  // Waits until the work has been released; returns the cause.
  [[nodiscard]] std::optional<Cause> wait_for_release() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLongEnough, [&] { return releases_ >= releases_needed; });
    return failure_;
  }
  void wait_for_checks(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLongEnough, [&] { return checks_ >= count; });
  }
  [[nodiscard]] int checks() {
    const std::lock_guard lock(mutex_);
    return checks_;
  }
  [[nodiscard]] int failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }

  int releases_needed = 1;

 private:
  const std::vector<Peer> peers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Deadline> deadline_;
  std::optional<Cause> cause_;
  std::optional<Cause> failure_;
  int checks_ = 0;
  int failures_ = 0;
  int releases_ = 0;
};

// A process that waits to be killed.
class Child {
 public:
  Child() : process_(::fork()) {
    if (process_ == 0) {
      while (true) ::pause();
    }
    descriptor_ = std::make_shared<const FileDescriptor>(
        static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill();
    (void)::waitpid(process_, nullptr, 0);
  }
  void kill() const { (void)::kill(process_, SIGKILL); }
  [[nodiscard]] const std::shared_ptr<const FileDescriptor>& descriptor() const {
    return descriptor_;
  }

 private:
  pid_t process_;
  std::shared_ptr<const FileDescriptor> descriptor_;
};

TEST(WatcherOfGpus, FailsAGroupWhenAProcessOfItIsKilled) {
  const Child child;
  FakeGroup group({{.rank = 1, .process = child.descriptor()}});
  const auto watcher = make_watcher({.query_interval = kNever});
  watcher->add(group);
  group.enqueue(Deadline::after(kNever));
  watcher->wake();
  group.wait_for_checks(1);
  std::this_thread::sleep_for(milliseconds(20));  // the watcher sleeps again
  // Only the end of the process wakes it: the interval is an hour.
  group.set_cause({1, "rank 1 has ended"});
  child.kill();
  const auto cause = group.wait_for_release();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->culprit, 1);
  EXPECT_EQ(cause->text, "rank 1 has ended");
  watcher->remove(group);
}

TEST(WatcherOfGpus, FailsAGroupWhenItsDeadlinePasses) {
  FakeGroup group;
  const auto watcher = make_watcher({.query_interval = kNever});
  watcher->add(group);
  group.enqueue(Deadline::after(milliseconds(20)));
  watcher->wake();
  const auto cause = group.wait_for_release();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->text, "late");
  watcher->remove(group);
}

TEST(WatcherOfGpus, AsksForErrorsThatHaveNoDescriptorWhileWorkIsEnqueued) {
  FakeGroup group;
  const auto watcher = make_watcher({.query_interval = milliseconds(5)});
  watcher->add(group);
  group.enqueue(Deadline::after(kNever));
  watcher->wake();
  group.wait_for_checks(3);
  group.set_cause({0, "asynchronous error"});
  const auto cause = group.wait_for_release();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->text, "asynchronous error");
  watcher->remove(group);
}

TEST(WatcherOfGpus, SleepsWhileNoWorkIsEnqueued) {
  FakeGroup group;
  group.set_cause({0, "would fail if it were asked"});
  const auto watcher = make_watcher({.query_interval = milliseconds(1)});
  watcher->add(group);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(group.checks(), 0);
  watcher->remove(group);
}

TEST(WatcherOfGpus, DoesNotSpinOnAProcessThatHasEndedAfterLeaving) {
  const Child child;
  FakeGroup group({{.rank = 1, .process = child.descriptor()}});
  constexpr milliseconds interval(20);
  const auto watcher = make_watcher({.query_interval = interval});
  child.kill();
  const auto begin = std::chrono::steady_clock::now();
  watcher->add(group);
  group.enqueue(Deadline::after(kNever));
  watcher->wake();
  group.wait_for_checks(1);
  std::this_thread::sleep_for(10 * interval);
  const auto checks = group.checks();
  const auto intervals = (std::chrono::steady_clock::now() - begin) / interval;
  EXPECT_GE(checks, 1);
  // About one per interval; without the rule, thousands.
  EXPECT_LE(checks, 10 + 2 * intervals);
  watcher->remove(group);
}

TEST(WatcherOfGpus, ReleasesUntilTheStreamsAreEmptyAndFailsOnce) {
  FakeGroup group;
  group.releases_needed = 5;
  group.set_cause({2, "rank 2 has ended"});
  const auto watcher = make_watcher({.query_interval = milliseconds(1)});
  watcher->add(group);
  group.enqueue(Deadline::after(kNever));
  watcher->wake();
  ASSERT_TRUE(group.wait_for_release());
  EXPECT_EQ(group.failures(), 1);
  watcher->remove(group);
}

TEST(WatcherOfGpus, ServesANewGroupAfterAnotherHasFailed) {
  const auto watcher = make_watcher({.query_interval = milliseconds(1)});
  FakeGroup failed;
  failed.set_cause({1, "first"});
  watcher->add(failed);
  failed.enqueue(Deadline::after(kNever));
  watcher->wake();
  ASSERT_TRUE(failed.wait_for_release());
  FakeGroup next;
  watcher->add(next);
  next.enqueue(Deadline::after(kNever));
  watcher->wake();
  next.wait_for_checks(2);
  EXPECT_EQ(next.failures(), 0);
  next.set_cause({0, "second"});
  EXPECT_EQ(next.wait_for_release()->text, "second");
  EXPECT_EQ(failed.failures(), 1);
  watcher->remove(failed);
  watcher->remove(next);
}

TEST(WatcherOfGpus, DoesNotUseAGroupThatHasBeenRemoved) {
  const auto watcher = make_watcher({.query_interval = milliseconds(1)});
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        // Its memory is gone after each iteration; the thread sanitizer sees a late use.
        FakeGroup group;
        group.set_cause({0, "fails at once"});
        watcher->add(group);
        group.enqueue(Deadline::after(kNever));
        watcher->wake();
        if (i % 2 == 0) (void)group.wait_for_release();
        watcher->remove(group);
      }
    });
  }
}

TEST(WatcherOfGpus, IsSharedByTheGroupsOfAProcessWhileOneHoldsIt) {
  auto first = watcher_of_process();
  auto second = watcher_of_process();
  EXPECT_EQ(first, second);
  const std::weak_ptr<Watcher> kept = first;
  first.reset();
  EXPECT_FALSE(kept.expired());
  second.reset();
  EXPECT_TRUE(kept.expired());  // and its thread has ended
  EXPECT_NE(watcher_of_process(), nullptr);
}

}  // namespace
}  // namespace lockstep
