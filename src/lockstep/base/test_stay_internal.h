// For tests whose ranks are processes: a rank that serves others stays until the test tells it that
// they need it no more.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

namespace lockstep {

class StayUntilTold {
 public:
  static constexpr int kSignal = SIGUSR1;  // for RunningRanks::send_signal()

  // Before the rank starts threads: the signal must find none that takes it.
  StayUntilTold() {
    ::sigemptyset(&awaited_);
    ::sigaddset(&awaited_, kSignal);
    EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, &awaited_, nullptr), 0);
  }

  void wait() const {
    int number = 0;
    EXPECT_EQ(::sigwait(&awaited_, &number), 0);
  }

 private:
  ::sigset_t awaited_{};
};

}  // namespace lockstep
