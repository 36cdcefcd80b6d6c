// For tests whose ranks are processes: a rank that serves others stays alive until the test signals
// that the others no longer need it.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

namespace lockstep {

class StayUntilTold {
 public:
  static constexpr int kSignal = SIGUSR1;  // for RunningRanks::send_signal()

  // Construct it before the rank starts threads: every thread must block the signal.
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
