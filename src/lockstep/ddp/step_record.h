// What happened when in one synchronisation of gradients: for tests, traces and reports.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "lockstep/trace/sink.h"

namespace lockstep {

using StepClock = std::chrono::steady_clock;

struct BucketRecord {
  std::int64_t bytes = 0;
  StepClock::time_point ready = {};     // its last gradient came
  StepClock::time_point launched = {};  // this rank entered the reduction: buckets go in order
  StepClock::time_point done = {};      // seen to be done: a bucket may have been so earlier
  int hooks_before = 0;                 // gradients that had come when it was launched

  /// From launched to done; 0 before that.
  [[nodiscard]] double bytes_per_second() const noexcept;
};

struct StepRecord {
  int hooks = 0;  // gradients that came during backward
  std::vector<BucketRecord> buckets = {};
  std::chrono::nanoseconds exposed{0};  // waited for others after backward had nothing left to do
};

/// Spans for each bucket that was reduced: "bucket 2 ready" until it was launched, and "bucket 2
/// reduced (1048576 bytes, 3.14 GB/s)"; and one "exposed communication" that ends at `end`.
void trace(const StepRecord& record, StepClock::time_point end, TraceSink& sink);

}  // namespace lockstep
