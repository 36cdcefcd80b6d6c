// What follows from a configuration once the data and the number of ranks are known: batch sizes,
// number of steps, learning rate schedule, optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/train/saved_config.h"
#include "lockstep/data/batch_sizes.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/shards.h"
#include "lockstep/train/flat_optimizer.h"
#include "lockstep/train/lr_scaling.h"
#include "lockstep/train/schedule.h"

namespace lockstep::cli {

/// The batch sizes for `world` ranks. If the number of ranks differs from that at the start of the
/// run, the global batch size is kept. Throws UsageError, with valid numbers of ranks, when it
/// cannot be divided among `world` ranks.
[[nodiscard]] BatchSizes batch_sizes_for(const SavedConfig& saved, int world);

/// The lengths of the run and of its intervals, in steps.
struct StepCounts {
  std::optional<std::int64_t> total;  // nullopt: the run's length is a time
  std::int64_t warmup = 0;
  std::int64_t eval_every = 1;
  std::int64_t save_every = 1;
  std::int64_t log_every = 1;
};
/// A default warm-up that is not shorter than the run becomes a tenth of the run. Throws UsageError
/// for a length in tokens when the data has none.
[[nodiscard]] StepCounts step_counts(const ResolvedConfig& resolved, StepSize size);

/// The learning rate after warm-up.
struct PeakLr {
  double value = 0;
  std::string reason;  // "lr 0.0004 = 0.0001 × 1024/256 (linear)"
};
[[nodiscard]] PeakLr peak_lr_for(const TrainConfig& config, std::int64_t global_batch);

/// Throws UsageError when the warm-up is not shorter than the run.
[[nodiscard]] Schedule schedule_for(const TrainConfig& config, const StepCounts& counts,
                                    double peak_lr);

/// The dtype of matrix products under `precision`; nullopt: that of the parameters.
[[nodiscard]] std::optional<at::ScalarType> autocast_type(Precision precision);

[[nodiscard]] std::unique_ptr<FlatOptimizer> make_optimizer(const TrainConfig& config,
                                                            FlatParameters& flat);

/// What decides whether a step can be captured (--cuda-graph).
struct CaptureFacts {
  bool is_on_cpu = true;
  int num_ranks = 1;
  std::string backend;  // of the group, for the device
  Shard shard = Shard::none;
};
/// Throws UsageError, with the option to leave out, if a CUDA graph cannot contain the steps.
void expect_capturable(const TrainConfig& config, const CaptureFacts& facts);

}  // namespace lockstep::cli
