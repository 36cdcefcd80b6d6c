// The row of metrics of an interval of steps, and the progress line. Pure functions: the loop
// supplies the numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/train/program/meter.h"
#include "cli/train/program/progress.h"
#include "lockstep/metrics/metrics_log.h"

namespace lockstep::cli {

/// The constants of a run. Throughput is counted in `unit`: "tok", "img", "row".
struct WorkPerStep {
  std::int64_t units = 0;  // over all ranks
  std::string unit = "tok";
  double operations_per_unit = 0;  // floating-point operations of matrix products; 0: unknown
  double peak_operations = 0;      // per second, of matrix products, all ranks together
  std::optional<std::int64_t> steps = {};  // of the whole run; nullopt: its length is a time
};

/// The state after the last step.
struct StepState {
  std::int64_t step = 0;  // counted from 1
  double lr = 0;          // of this step
  double gradient_norm = 0;
  std::int64_t epoch = 0;
  std::optional<double> loss_scale = {};    // nullopt: losses are not scaled
  std::optional<double> seconds_left = {};  // set when the length of the run is a time
};

/// The row of the interval that ends at `state`.
[[nodiscard]] MetricRow interval_row(const WorkPerStep& work, const Interval& interval,
                                     const StepState& state);

/// The progress at `state`, with the times of this rank. `meter` has at least one step.
[[nodiscard]] Progress live_progress(const WorkPerStep& work, const Meter& meter,
                                     const StepState& state, double loss);

/// The progress at the end of an interval, with the means over all ranks.
[[nodiscard]] Progress interval_progress(const WorkPerStep& work, const Meter& meter,
                                         const StepState& state, const Interval& interval);

}  // namespace lockstep::cli
