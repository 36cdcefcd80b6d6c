// The training loop of `lockstep train`, built from the library's public headers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/train/program/compression.h"
#include "cli/train/program/evaluation.h"
#include "cli/train/program/interval_log.h"
#include "cli/train/program/meter.h"
#include "cli/train/program/rank_log.h"
#include "cli/train/program/reporter.h"
#include "cli/train/program/setup.h"
#include "cli/train/program/shard_choice.h"
#include "cli/train/program/summary.h"
#include "cli/train/program/task.h"
#include "cli/train/program/train_clock.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/data/loader.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/flat/pending.h"
#include "lockstep/trace/step_timer.h"
#include "lockstep/train/cuda_graph_step.h"
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
  void open_rank_log(std::int64_t resumed_at);
  void announce();
  bool train();
  void note_failure(const Error& error, int rank);
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool gave_up() const;
  /// One optimizer step, from batches to weights.
  void step();
  /// Ends the step: saves if a save is due. Returns whether a signal requests a stop.
  [[nodiscard]] bool end_step(const StepEnd& end);
  /// Writes the event of a checkpoint that was committed since the last call.
  void note_save();
  [[nodiscard]] at::Tensor loss_of(const Batch& batch);
  /// Forward and backward of a micro-batch; the last one of a step averages gradients over ranks.
  /// Adds its loss to `loss`.
  void compute(const Batch& batch, Mean& loss);
  /// With `lr`, or with that of the optimizer in a captured step. Returns the gradient norm.
  Pending<double> update_weights(std::optional<double> lr);
  /// The step of `batch` as a CUDA graph; returns its loss.
  [[nodiscard]] at::Tensor replay(const Batch& batch);
  [[nodiscard]] at::Tensor captured_step(const std::vector<at::Tensor>& tensors);
  /// Of the last reduction. Empty if a graph replays the steps: the host sees nothing of them.
  [[nodiscard]] const StepRecord& step_record() const;
  /// Throws UsageError if a gradient since the last call was non-finite.
  void expect_finite();
  [[noreturn]] void refuse_non_finite(std::int64_t first) const;
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
  at::Device device_;
  ProcessGroup group_;
  Seeds seeds_;
  std::unique_ptr<Task> task_;
  BatchSizes sizes_;
  ShardDecision sharding_;
  Ddp ddp_;
  Compression compression_;
  std::unique_ptr<FlatOptimizer> optimizer_;
  Loader loader_;
  StepCounts counts_;
  PeakLr peak_lr_;
  Schedule schedule_;
  GradScaler scaler_;
  Best best_;
  TrainClock clock_;
  Run run_;
  std::optional<Reporter> reporter_;  // set once the resumed step is known
  WorkPerStep work_;
  Meter meter_;
  std::optional<RankLog> rank_log_;      // set with reporter_
  std::optional<StepTimer> timer_;       // likewise
  StepClock::time_point backward_ = {};  // when the last backward of this step began
  std::optional<double> interval_loss_;  // of this rank: a log interval ends with this step
  bool has_period_ = false;              // RankLog::end_period() was called
  std::map<std::int64_t, std::chrono::nanoseconds> stalls_;  // by step, until its event save
  std::int64_t noted_save_ = -1;                             // the step of the last event save
  std::optional<EvalResult> result_;                         // of the last evaluation
  std::int64_t evaluated_at_ = -1;                           // its step
  Pending<double> norm_ = 0;                                 // of the last gradient
  Pending<double> norms_ = 0;       // the sum of the norms since checked_until_
  std::int64_t checked_until_ = 0;  // gradients up to this step were finite
  std::optional<CudaGraphStep> graph_;
  Batch first_batch_;         // what a captured step knows besides the tensors
  at::Tensor norm_of_graph_;  // of its gradient
};

}  // namespace lockstep::cli
