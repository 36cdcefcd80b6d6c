#include "cli/train/program/interval_log.h"

#include <cmath>

namespace lockstep::cli {
namespace {

double units_per_second(const WorkPerStep& work, const Interval& interval) {
  return static_cast<double>(interval.steps * work.units) / interval.seconds.value();
}

}  // namespace

MetricRow interval_row(const WorkPerStep& work, const Interval& interval, const StepState& state) {
  const auto per_second = units_per_second(work, interval);
  MetricRow row{.step = state.step, .kind = MetricKind::train};
  row.metrics = {{"loss", interval.loss.value()},
                 {"lr", state.lr},
                 {"gradient_norm", state.gradient_norm},
                 {work.unit == "tok" ? "tokens_per_second" : "samples_per_second", per_second},
                 {"step_ms", 1e3 * interval.seconds.value() / static_cast<double>(interval.steps)},
                 {"data_wait", interval.data_wait.value()},
                 {"data_wait_worst", interval.worst_data_wait.value()},
                 {"exposed_communication", interval.exposed.value()},
                 {"epoch", state.epoch}};
  if (const auto operations = per_second * work.operations_per_unit; operations > 0) {
    row.metrics.push_back({"gflops", operations / 1e9});
    row.metrics.push_back({"mfu", operations / work.peak_operations});
  }
  if (state.loss_scale) row.metrics.push_back({"loss_scale", *state.loss_scale});
  return row;
}

Progress live_progress(const WorkPerStep& work, const Meter& meter, const StepState& state,
                       double loss) {
  const auto& split = meter.split();
  Progress result{.step = state.step,
                  .steps = work.steps,
                  .loss = loss,
                  .lr = state.lr,
                  .units_per_second = static_cast<double>(work.units) / meter.mean_step().count(),
                  .unit = work.unit,
                  .data_wait = split.data_wait / split.steps,
                  .exposed = split.exposed / split.steps};
  // The mean over all steps so far includes evaluations and saves.
  const auto each = split.whole().count() / static_cast<double>(meter.steps());
  const double left = work.steps ? static_cast<double>(*work.steps - state.step) * each
                                 : state.seconds_left.value_or(0);
  result.left = std::chrono::seconds(std::llround(left));
  return result;
}

Progress interval_progress(const WorkPerStep& work, const Meter& meter, const StepState& state,
                           const Interval& interval) {
  auto result = live_progress(work, meter, state, interval.loss.value());
  result.data_wait = interval.data_wait.value();
  result.exposed = interval.exposed.value();
  result.units_per_second = units_per_second(work, interval);
  return result;
}

}  // namespace lockstep::cli
