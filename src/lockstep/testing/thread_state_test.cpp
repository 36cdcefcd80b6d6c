#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <future>
#include <mutex>
#include <thread>

#include "lockstep/testing/processes.h"
#include "lockstep/testing/thread_state_internal.h"

namespace lockstep::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

pid_t thread_id() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

// A thread that stores its id and then waits on a condition until it is destroyed.
class Waiter {
 public:
  Waiter()
      : thread_([this](const std::stop_token& stop) {
          id_.set_value(thread_id());
          std::unique_lock lock(mutex_);
          stopped_.wait(lock, stop, [] { return false; });
        }) {}

  pid_t id() { return id_.get_future().get(); }

 private:
  std::promise<pid_t> id_;
  std::mutex mutex_;  // protects no data
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

TEST(ThreadState, TheCallingThreadIsRunning) {
  EXPECT_EQ(kernel_state(::getpid(), thread_id()).substr(0, 11), "R (running)");
}

TEST(ThreadState, AThreadThatHasEndedIsGone) {
  pid_t id = 0;
  std::jthread([&] { id = thread_id(); }).join();
  // join() returns shortly before the kernel removes the thread; until then it shows as ended.
  const auto state = kernel_state(::getpid(), id);
  EXPECT_TRUE(state == "gone" || state.starts_with("X") || state.starts_with("Z")) << state;
}

TEST(ThreadState, AStackShowsTheFileOfEachFrame) {
  Waiter waiter;
  const std::array threads{waiter.id()};
  const auto stacks = sample_stacks(threads, Deadline::after(10s));
  ASSERT_EQ(stacks.size(), 1u);
  EXPECT_TRUE(stacks[0].starts_with("#0 ")) << stacks[0];
  EXPECT_NE(stacks[0].find("+0x"), std::string::npos) << stacks[0];
  EXPECT_NE(stacks[0].find(program_invocation_short_name), std::string::npos) << stacks[0];
}

TEST(ThreadState, AThreadThatDoesNotAnswerIsReportedAfterTheDeadline) {
  // In a process of its own that ends afterwards: the pipe for a late answer is never closed.
  (void)run_ranks_as_processes(1, [](Rank& /*self*/) {
    std::promise<pid_t> id;
    std::jthread deaf([&](const std::stop_token& stop) {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      id.set_value(thread_id());
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait(lock, stop, [] { return false; });
    });
    const std::array threads{id.get_future().get()};
    const auto stacks = sample_stacks(threads, Deadline::after(20ms));
    EXPECT_EQ(stacks, std::vector<std::string>{"no stack: the thread did not answer a signal\n"});
  });
}

}  // namespace
}  // namespace lockstep::testing
