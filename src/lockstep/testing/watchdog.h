// Ends a process that hangs and reports its state: the log of a test that hangs then shows what
// the test waits for, instead of only the test runner's timeout.
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

/// Unless destroyed within `limit`, writes a line that names the process and the result of
/// `describe` to standard error, then ends the process with kHungExitStatus. Destructors and exit
/// handlers do not run: they could hang too.
class Watchdog {
 public:
  /// `describe` is called on a separate thread while the other threads hang, so it must not wait
  /// for a lock that they may hold. The process ends after `kDescribeLimit` even if it does.
  Watchdog(std::chrono::nanoseconds limit, std::function<std::string()> describe);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  /// Stops the timer; the process continues.
  ~Watchdog() = default;

  static constexpr std::chrono::seconds kDescribeLimit{3};

 private:
  void watch(const std::stop_token& stop);
  [[noreturn]] void bite() const;

  std::chrono::nanoseconds limit_;
  std::function<std::string()> describe_;
  std::mutex mutex_;  // protects no data: condition variables need one
  std::condition_variable_any called_off_;
  std::jthread thread_;
};

}  // namespace lockstep::testing
