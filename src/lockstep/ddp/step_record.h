// Times of one reduction of gradients, for tests, traces and reports.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/ddp/device_timeline.h"
#include "lockstep/trace/rank_interval.h"
#include "lockstep/trace/trace.h"

namespace lockstep {

using StepClock = std::chrono::steady_clock;

struct BucketRecord {
  std::int64_t bytes = 0;
  StepClock::time_point ready = {};     // its last gradient arrived
  StepClock::time_point launched = {};  // this rank entered the all-reduce, in the buckets' order
  // Seen by this rank, which looks when a gradient arrives and when it waits:
  StepClock::time_point all_entered = {};  // the last rank entered
  StepClock::time_point done = {};
  int hooks_before = 0;  // gradients that had arrived when it was launched
  // Waited for the memory of an earlier bucket, just before `launched` (Shard::gradients).
  std::chrono::nanoseconds room{0};
  // With a gradient hook: an all-reduce of wire_bytes has as much traffic as its calls. Without
  // one: `bytes`.
  std::int64_t wire_bytes = 0;
  std::chrono::nanoseconds encode{0};
  std::chrono::nanoseconds decode{0};

  /// Between all_entered and done: the reduction itself; 0 before it is done.
  [[nodiscard]] double bytes_per_second() const noexcept;
};

struct StepRecord {
  int hooks = 0;  // gradients that arrived during backward
  std::vector<BucketRecord> buckets = {};
  // Time of the training thread within backward: entering all-reduces and advancing them.
  std::chrono::nanoseconds launching{0};
  std::chrono::nanoseconds exposed{0};  // time waited after backward had ended
  // With gradients on a GPU and DdpOptions::trace; null otherwise.
  std::shared_ptr<const DeviceTimeline> device = {};
};

/// When this rank entered the last all-reduce of the step; the epoch if there was none. The ranks
/// of a host have the same clock: the latest of them is the rank that the others waited for.
[[nodiscard]] StepClock::time_point last_entry(const StepRecord& record) noexcept;

/// The time in which at least one bucket was being reduced: launched and not done.
[[nodiscard]] std::chrono::nanoseconds reducing_time(const StepRecord& record);

/// Sums the times of buckets over steps, for rows of kind bucket.
class BucketMeter {
 public:
  /// Adds a step whose backward began at `begin`. Starts again if the number of buckets changed.
  void add(const StepRecord& record, StepClock::time_point begin);
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

  /// The sums as numbers, to be gathered; starts again. With more than kMaxBuckets, neighbouring
  /// ones are combined, the same on all ranks.
  static constexpr std::size_t kMaxBuckets = 64;
  [[nodiscard]] std::vector<double> read_and_reset();

 private:
  std::vector<BucketFigures> sums_;  // gb_per_s: the sum of done - all_in, in ms
  std::int64_t steps_ = 0;
};

/// Means over steps and ranks of what BucketMeter::read_and_reset() returned on each rank.
[[nodiscard]] std::vector<BucketFigures> mean_buckets(
    std::span<const std::vector<double>> of_ranks);

/// Records up to three spans per reduced bucket: ready and not launched, waiting for other ranks,
/// being reduced; one for a wait for memory, and one for exposed communication. Counts a step
/// (Trace::count_step).
void trace(const StepRecord& record, Trace& trace);

}  // namespace lockstep
