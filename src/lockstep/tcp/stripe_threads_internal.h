// Threads that move the bytes of several stripes at the same time, while one thread that holds the
// lock of the network waits for them: for everything else, that one moves them.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

/// One thread per stripe, at most `most`; how many of them beside the one that has the lock.
[[nodiscard]] constexpr int extra_threads(int num_stripes, int most) noexcept {
  return std::max(std::min(num_stripes, most) - 1, 0);
}

class StripeThreads {
 public:
  /// Starts threads until there are `count`, or as many as the system allows. They sleep.
  void grow(std::size_t count);
  [[nodiscard]] bool is_empty() const;
  /// Calls `turn`, which never waits or throws, once for each number below `count`: in the calling
  /// thread, and in those that wake up in time. Returns when all calls have returned. One caller at
  /// a time.
  void run(std::size_t count, const std::function<void(std::size_t)>& turn);
  /// The processor time of the threads so far.
  [[nodiscard]] double seconds() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  void run_turns(Lock& lock);

  mutable std::mutex mutex_;
  const std::function<void(std::size_t)>* turn_ = nullptr;  // mutex_; while next_ < count_
  std::size_t count_ = 0;                                   // mutex_
  std::size_t next_ = 0;                                    // mutex_
  std::size_t running_ = 0;                                 // mutex_; turns
  std::condition_variable_any begun_;
  std::condition_variable ended_;      // the turns that other threads run
  std::vector<std::jthread> threads_;  // mutex_; last
};

}  // namespace lockstep
