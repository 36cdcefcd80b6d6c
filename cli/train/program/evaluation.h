// Evaluates the model on validation data, each sample exactly once over all ranks, and tracks the
// best result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli/train/program/task.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/data/batch_sizes.h"
#include "lockstep/metrics/metrics_log.h"

namespace lockstep::cli {

struct EvaluationOptions {
  BatchSizes sizes = {};
  std::int64_t batches = 0;  // per rank; 0: all validation data
};

/// Evaluates `task` and reduces the result over all ranks, weighted by the number of samples.
/// Collective: every rank calls this; all get the same result. Switches the model to evaluation
/// mode and back to training mode.
[[nodiscard]] EvalResult evaluate(Task& task, const ProcessGroup& group,
                                  const EvaluationOptions& options);

/// The best evaluation so far. A checkpoint saves and loads it.
class Best {
 public:
  /// Adds an evaluation; returns whether its loss is the lowest so far.
  bool add(double loss, std::int64_t step);

  [[nodiscard]] std::optional<double> loss() const noexcept { return loss_; }
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  /// The number of evaluations since the best one.
  [[nodiscard]] std::int64_t since() const noexcept { return since_; }

  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError for a text that state_json does not write.
  void load_state_json(std::string_view json);

 private:
  std::optional<double> loss_;
  std::int64_t step_ = 0;
  std::int64_t since_ = 0;
};

/// The row of metrics of the evaluation after `step` steps.
[[nodiscard]] MetricRow evaluation_row(std::int64_t step, const EvalResult& result);

/// The line for the user: "step 40: validation loss 1.2500, accuracy 61.00 %, best so far". `best`
/// already includes the evaluation. With a `patience` above 0, the line ends with the number of
/// evaluations since the best one, as "(2 of 5)".
[[nodiscard]] std::string evaluation_line(std::int64_t step, const EvalResult& result,
                                          const Best& best, std::int64_t patience);

}  // namespace lockstep::cli
