// What a configuration comes to once the data and the number of ranks are known: batch sizes,
// steps, the rate's schedule, the optimizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/train/saved_config.h"
#include "lockstep/data/batch_sizes.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/train/flat_optimizer.h"
#include "lockstep/train/rate_scaling.h"
#include "lockstep/train/schedule.h"

namespace lockstep::cli {

/// The sizes for `world` ranks: those the run was begun with, or, with another number of ranks,
/// what keeps the global batch. Throws UsageError with the numbers that would do.
[[nodiscard]] BatchSizes batch_sizes_for(const SavedConfig& saved, int world);

/// How long the run and its intervals are, in steps.
struct StepCounts {
  std::optional<std::int64_t> total;  // none: until its time is over
  std::int64_t warmup = 0;
  std::int64_t evaluate_every = 1;
  std::int64_t save_every = 1;
  std::int64_t log_every = 1;
};
/// A warm-up that nobody asked for, and that is as long as the run, becomes a tenth of it.
[[nodiscard]] StepCounts step_counts(const ResolvedConfig& resolved, StepSize size);

/// The highest rate, with its factors.
struct Rate {
  double highest = 0;
  std::string reason;  // "rate 0.0004 = 0.0001 × 1024/256 (linear)"
};
[[nodiscard]] Rate rate_for(const TrainConfig& config, std::int64_t global_batch);

/// Throws UsageError when the warm-up is longer than the run.
[[nodiscard]] Schedule schedule_for(const TrainConfig& config, const StepCounts& counts,
                                    double highest);

[[nodiscard]] std::unique_ptr<FlatOptimizer> make_optimizer(const TrainConfig& config,
                                                            FlatParameters& flat);

}  // namespace lockstep::cli
