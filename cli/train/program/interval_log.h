// What is logged of training steps: the row of metrics of an interval, and the line of progress.
// Pure: the loop supplies the numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/train/program/meter.h"
#include "cli/train/program/progress.h"
#include "lockstep/metrics/metrics_log.h"

namespace lockstep::cli {

/// What stays the same while a run trains. A unit is what throughput counts: "tok".
struct WorkPerStep {
  std::int64_t units = 0;  // over all ranks
  std::string unit = "tok";
  double operations_per_unit = 0;          // of matrix products; 0: not known
  double peak_operations = 0;              // per second, of matrix products on all ranks together
  std::optional<std::int64_t> steps = {};  // of the whole run; none: its length is a time
};

/// The step that was done last.
struct StepState {
  std::int64_t step = 0;  // counted from 1
  double rate = 0;        // that it used
  double gradient_norm = 0;
  std::int64_t epoch = 0;
  std::optional<double> loss_scale = {};    // none: losses are not scaled
  std::optional<double> seconds_left = {};  // where the run's length is a time
};

/// The row of an interval that ends with `state`.
[[nodiscard]] MetricRow interval_row(const WorkPerStep& work, const Interval& interval,
                                     const StepState& state);

/// Progress after `state`, with this rank's own times. `meter` has one step or more.
[[nodiscard]] Progress live_progress(const WorkPerStep& work, const Meter& meter,
                                     const StepState& state, double loss);

/// The same at the end of an interval, with the means over all ranks.
[[nodiscard]] Progress interval_progress(const WorkPerStep& work, const Meter& meter,
                                         const StepState& state, const Interval& interval);

}  // namespace lockstep::cli
