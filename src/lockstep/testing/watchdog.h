// Ends a process that hangs, with words: a test that waits for ever should show what it waits for,
// in the log of the run that hung, instead of being killed without a trace by whoever started it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace lockstep::testing {

/// The exit status of a process that a Watchdog has ended; timeout(1) uses the same.
constexpr int kHungExitStatus = 124;

/// Unless destroyed within `limit`, writes to standard error what hung and what `describe` returns,
/// then ends the process at once: no destructors, no exit handlers, since what hangs could hang
/// those too.
class Watchdog {
 public:
  /// `describe` is called on a thread of its own while everything else is stuck, so it must not
  /// wait for a lock that may be held; the process ends `kDescribeLimit` later even if it does.
  Watchdog(std::chrono::nanoseconds limit, std::function<std::string()> describe);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Calls the dog off.
  ~Watchdog() = default;

  static constexpr std::chrono::seconds kDescribeLimit{3};

 private:
  void watch(const std::stop_token& stop);
  [[noreturn]] void bite() const;

  std::chrono::nanoseconds limit_;
  std::function<std::string()> describe_;
  std::mutex mutex_;  // guards nothing: condition variables want one
  std::condition_variable_any called_off_;
  std::jthread thread_;
};

}  // namespace lockstep::testing
