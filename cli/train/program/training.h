// The training loop of `lockstep train`, built from the library's public headers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/train/program/evaluation.h"
#include "cli/train/program/interval_log.h"
#include "cli/train/program/meter.h"
#include "cli/train/program/reporter.h"
#include "cli/train/program/setup.h"
#include "cli/train/program/summary.h"
#include "cli/train/program/task.h"
#include "cli/train/program/train_clock.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/data/loader.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/train/grad_scaler.h"
#include "lockstep/train/seeds.h"

namespace lockstep::cli {

class Training {
 public:
  /// Collective, as every function of this class. Throws UsageError for a configuration that does
  /// not fit the data or the number of ranks.
  Training(const World& world, std::string folder, SavedConfig saved);

  /// Trains until the end of the run or until a signal requests a stop, and prints which. Returns
  /// whether the run has ended.
  bool run();

 private:
  void open_run();
  void announce();
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool gave_up() const;
  /// One optimizer step, from batches to weights.
  void step();
  [[nodiscard]] at::Tensor loss_of(const Batch& batch);
  void update_weights();
  void refuse_non_finite() const;
  /// The state after the current step.
  [[nodiscard]] StepState state() const;
  void log_interval();
  [[nodiscard]] bool evaluation_due() const;
  /// Returns whether the result is the best so far.
  bool evaluate_now();
  /// The reason for the end, without the figures of the summary.
  [[nodiscard]] SummaryFacts end_facts() const;
  void finish();

  const World& world_;
  std::string folder_;
  SavedConfig saved_;
  const TrainConfig& config_;  // saved_'s
  ProcessGroup group_;
  Seeds seeds_;
  std::unique_ptr<Task> task_;
  BatchSizes sizes_;
  Ddp ddp_;
  std::unique_ptr<FlatOptimizer> optimizer_;
  Loader loader_;
  StepCounts counts_;
  PeakLr peak_lr_;
  Schedule schedule_;
  GradScaler scaler_;
  Best best_;
  TrainClock clock_;
  std::optional<Deterministic> deterministic_;
  Run run_;
  std::optional<Reporter> reporter_;  // set once the resumed step is known
  WorkPerStep work_;
  Meter meter_;
  std::optional<EvalResult> result_;  // of the last evaluation
  std::int64_t evaluated_at_ = -1;    // its step
  double norm_ = 0;                   // of the last gradient
};

}  // namespace lockstep::cli
