#include <algorithm>
#include <stop_token>
#include <system_error>

#include "lockstep/base/thread_time.h"
#include "lockstep/tcp/stripe_threads_internal.h"

namespace lockstep {

void StripeThreads::grow(std::size_t count) {
  const Lock lock(mutex_);
  try {
    while (threads_.size() < count) {
      threads_.emplace_back([this](const std::stop_token& stop) {
        Lock own(mutex_);
        while (begun_.wait(own, stop, [this] { return next_ < count_; })) run_turns(own);
      });
    }
  } catch (const std::system_error&) {
    // Fewer threads, down to the one that calls run(), take all turns.
  }
}

bool StripeThreads::is_empty() const {
  const Lock lock(mutex_);
  return threads_.empty();
}

void StripeThreads::run(std::size_t count, const std::function<void(std::size_t)>& turn) {
  Lock lock(mutex_);
  turn_ = &turn;
  count_ = count;
  next_ = 0;
  for (std::size_t i = 1; i < std::min(count, threads_.size() + 1); ++i) begun_.notify_one();
  run_turns(lock);
  ended_.wait(lock, [this] { return running_ == 0; });
}

void StripeThreads::run_turns(Lock& lock) {
  while (next_ < count_) {
    const auto index = next_++;
    const auto& turn = *turn_;
    ++running_;
    lock.unlock();
    turn(index);
    lock.lock();
    if (--running_ == 0 && next_ == count_) ended_.notify_one();
  }
}

double StripeThreads::seconds() const {
  const Lock lock(mutex_);
  double sum = 0;
  for (const auto& thread : threads_) {
    sum += processor_seconds_of(const_cast<std::jthread&>(thread).native_handle());
  }
  return sum;
}

}  // namespace lockstep
