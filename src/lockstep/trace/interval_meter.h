// Collects the steps of one rank into the figures of an interval (rank_interval.h), and compares
// the ranks: which one entered the last all-reduce of a step last.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/trace/process_usage.h"
#include "lockstep/trace/rank_interval.h"
#include "lockstep/trace/step_split.h"

namespace lockstep {

/// The communication of one step, as Ddp::record() has it.
struct StepReduction {
  std::chrono::nanoseconds entered{0};    // the last all-reduce, since the epoch of steady_clock
  std::chrono::nanoseconds reducing{0};   // time in which at least one bucket was being reduced
  std::chrono::nanoseconds launching{0};  // time of backward for entering and advancing all-reduces
};

class IntervalMeter {
 public:
  /// The first interval begins now.
  explicit IntervalMeter(const ProcessUsage& now = read_process_usage()) : usage_(now) {}

  void add(const StepSplit& split, const StepReduction& reduction);

  [[nodiscard]] std::int64_t steps() const noexcept {
    return static_cast<std::int64_t>(step_ms_.size());
  }
  /// Ends the interval and returns its figures, without those that need other ranks, the loss and
  /// the GPU: rank, host, step, time, late_ms and last are 0.
  [[nodiscard]] RankInterval read_and_reset(const ProcessUsage& now = read_process_usage());

  /// The times of StepReduction::entered of the last kMaxEntries steps of the interval. Read before
  /// read_and_reset(). Equal steps on all ranks.
  static constexpr std::size_t kMaxEntries = 64;
  [[nodiscard]] std::span<const double> entries() const noexcept { return entries_; }

 private:
  ProcessUsage usage_;  // at the begin of the interval
  std::vector<double> step_ms_;
  std::vector<double> entries_;  // nanoseconds
  StepSplit split_;
  std::chrono::nanoseconds reducing_{0};
  std::chrono::nanoseconds launching_{0};
};

/// The figures of one rank with its entries as one list of numbers, to be gathered; and back.
[[nodiscard]] std::vector<double> to_numbers(const RankInterval& interval,
                                             std::span<const double> entries);
struct GatheredInterval {
  RankInterval interval;
  std::vector<double> entries;
};
/// Throws UsageError for a list that to_numbers() of this version did not write.
[[nodiscard]] GatheredInterval interval_from_numbers(std::span<const double> numbers);

/// Sets late_ms and last of every rank. All ranks have equally many entries, on one clock.
void compare_entries(std::span<GatheredInterval> ranks);

}  // namespace lockstep
