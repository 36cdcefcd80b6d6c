// The training loop of `lockstep train`, built from what the library offers to any loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/train/program/evaluation.h"
#include "cli/train/program/meter.h"
#include "cli/train/program/reporter.h"
#include "cli/train/program/setup.h"
#include "cli/train/program/task.h"
#include "cli/train/run_start.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/data/loader.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/train/grad_scaler.h"
#include "lockstep/train/seeds.h"

namespace lockstep::cli {

/// How long the run has trained, for one whose length is a time. Offers what a checkpoint saves.
struct TrainClock {
  double seconds = 0;

  [[nodiscard]] std::string state_json() const;
  void load_state_json(std::string_view json);
};

class Training {
 public:
  /// Collective, as everything here. Throws UsageError for a configuration that does not fit the
  /// data or the number of ranks.
  Training(const World& world, std::string folder, SavedConfig saved);

  /// Trains to the end, or until a signal asks for a stop; says so. Returns whether it is the end.
  bool run();

 private:
  void open_run();
  void announce();
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool gave_up() const;
  void tell_that_it_is_over();
  [[nodiscard]] Finished finished(const std::string& why) const;
  /// One optimizer step, from batches to weights.
  void step();
  [[nodiscard]] at::Tensor loss_of(const Batch& batch);
  void update_weights();
  void refuse_non_finite() const;
  void log_interval();
  [[nodiscard]] bool evaluation_due() const;
  /// Returns whether it is the best so far.
  bool evaluate_now();
  [[nodiscard]] Progress progress(double loss) const;
  [[nodiscard]] std::uint64_t equal_digest();
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
  Rate rate_;
  Schedule schedule_;
  GradScaler scaler_;
  Best best_;
  TrainClock clock_;
  std::optional<Deterministic> deterministic_;
  Run run_;
  std::optional<Reporter> reporter_;  // once it is known where the run goes on
  Meter meter_;
  std::optional<Scores> scores_;  // of the last evaluation
  std::int64_t scored_at_ = -1;   // its step
  double norm_ = 0;               // of the last gradient
  double peak_ = 0;               // of matrix products on all ranks together
};

}  // namespace lockstep::cli
