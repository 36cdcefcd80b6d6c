// Held-out data: each sample exactly once over all ranks, and whether it is the best so far.
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
  std::int64_t batches = 0;  // on each rank; 0: all data
};

/// The scores of all ranks together, equal on all of them, by true counts.
/// Collective: every rank calls this. The model is in evaluation mode meanwhile.
[[nodiscard]] Scores evaluate(Task& task, const ProcessGroup& group,
                              const EvaluationOptions& options);

/// The best evaluation so far. Offers what a checkpoint saves.
class Best {
 public:
  /// Notes an evaluation; returns whether it is better than all before.
  bool add(double loss, std::int64_t step);

  [[nodiscard]] std::optional<double> loss() const noexcept { return loss_; }
  [[nodiscard]] std::int64_t step() const noexcept { return step_; }
  /// Evaluations since.
  [[nodiscard]] std::int64_t since() const noexcept { return since_; }

  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError for anything that state_json does not write.
  void load_state_json(std::string_view json);

 private:
  std::optional<double> loss_;
  std::int64_t step_ = 0;
  std::int64_t since_ = 0;
};

/// The row of metrics of an evaluation after `step` steps.
[[nodiscard]] MetricRow evaluation_row(std::int64_t step, const Scores& scores);

/// The line that people see: "step 40: held-out loss 1.2500, 61.00 % right, the best so far".
/// `best` has seen the evaluation; `patience` is how many without a better one end the run, 0: none
/// do.
[[nodiscard]] std::string evaluation_line(std::int64_t step, const Scores& scores, const Best& best,
                                          std::int64_t patience);

}  // namespace lockstep::cli
