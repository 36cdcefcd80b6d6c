// A total that grows, recorded at every change:
//   Counter samples(sink, "samples");  samples.add(32);
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "lockstep/trace/sink.h"

namespace lockstep {

class Counter {
 public:
  /// Starts at zero. `sink` must outlive the counter.
  Counter(TraceSink& sink, std::string name) : sink_(sink), name_(std::move(name)) {}

  /// Adds `amount` and records the new total. Thread-safe; the sink receives totals in order.
  void add(double amount) {
    const std::lock_guard lock(mutex_);
    total_ += amount;
    sink_.record(TraceCounter{name_, TraceClock::now(), total_});
  }

  [[nodiscard]] double total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

 private:
  TraceSink& sink_;
  const std::string name_;
  mutable std::mutex mutex_;
  double total_ = 0;  // mutex_
};

}  // namespace lockstep
