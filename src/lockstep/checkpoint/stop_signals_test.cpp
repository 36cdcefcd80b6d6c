#include "lockstep/checkpoint/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

namespace lockstep {
namespace {

// Longer than the 500 ms in which two signals count as one request.
constexpr std::chrono::milliseconds kLater{1000};

// The signal that ended a child process running `what`; empty if it exited.
std::optional<int> ended_by(const std::function<void()>& what) {
  const auto child = ::fork();
  if (child == 0) {
    what();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? std::optional(WTERMSIG(status)) : std::nullopt;
}

TEST(StopSignals, RecordTheFirstAndLeaveThePreviousActionToTheSecond) {
  for (const int first : {SIGTERM, SIGINT}) {
    for (const int second : {SIGTERM, SIGINT}) {
      EXPECT_EQ(ended_by([&] {
                  const StopSignals signals;
                  ::raise(first);
                  if (signals.received() != first) ::_exit(1);
                  std::this_thread::sleep_for(kLater);
                  ::raise(second);
                }),
                second);
    }
  }
}

// timeout(1) signals its child, and then the group that the child is in.
TEST(StopSignals, CountTwoWithinHalfASecondAsOneRequest) {
  EXPECT_EQ(ended_by([] {
              const StopSignals signals;
              ::raise(SIGTERM);
              ::raise(SIGTERM);
              ::raise(SIGINT);
            }),
            std::nullopt);
}

TEST(StopSignals, RecordEveryUserSignal) {
  EXPECT_EQ(ended_by([] {
              const StopSignals signals;
              ::raise(SIGUSR1);
              std::this_thread::sleep_for(kLater);
              ::raise(SIGUSR1);
              if (signals.received() != SIGUSR1) ::_exit(1);
              ::raise(SIGTERM);
              if (signals.received() != SIGTERM) ::raise(SIGABRT);
            }),
            std::nullopt);
}

int num_handled = 0;
void count(int /*signal*/) { ++num_handled; }

TEST(StopSignals, LeaveTheSecondToTheProgramsOwnHandler) {
  num_handled = 0;
  const auto before = ::signal(SIGTERM, count);
  {
    const StopSignals signals;
    ::raise(SIGTERM);
    EXPECT_EQ(num_handled, 0);
    std::this_thread::sleep_for(kLater);
    ::raise(SIGTERM);
    EXPECT_EQ(num_handled, 1);
  }
  ::raise(SIGTERM);
  EXPECT_EQ(num_handled, 2);
  (void)::signal(SIGTERM, before);
}

}  // namespace
}  // namespace lockstep
