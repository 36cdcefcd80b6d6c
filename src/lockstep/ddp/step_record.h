// Times of one reduction of gradients, for tests, traces and reports.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "lockstep/trace/sink.h"

namespace lockstep {

using StepClock = std::chrono::steady_clock;

struct BucketRecord {
  std::int64_t bytes = 0;
  StepClock::time_point ready = {};  // its last gradient arrived
  StepClock::time_point launched =
      {};  // this rank entered the all-reduce; buckets are launched in order
  StepClock::time_point done = {};  // observed to be done; it may have completed earlier
  int hooks_before = 0;             // gradients that had arrived when it was launched

  /// Between launched and done; 0 before it is done.
  [[nodiscard]] double bytes_per_second() const noexcept;
};

struct StepRecord {
  int hooks = 0;  // gradients that arrived during backward
  std::vector<BucketRecord> buckets = {};
  std::chrono::nanoseconds exposed{0};  // time waited after backward had ended
};

/// Records two spans per reduced bucket, "bucket 2 ready" (until it was launched) and "bucket 2
/// reduced (1048576 bytes, 3.14 GB/s)", and one span "exposed communication" that ends at `end`.
void trace(const StepRecord& record, StepClock::time_point end, TraceSink& sink);

}  // namespace lockstep
