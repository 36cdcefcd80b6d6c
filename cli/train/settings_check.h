// Validates a configuration.
#pragma once

#include "cli/train/settings.h"

namespace lockstep::cli {

/// Throws UsageError for invalid values and for values that contradict each other; it names the
/// settings, their values and a valid choice. Sets values that follow from others: the schedule and
/// the number of micro-batches.
void check(ResolvedConfig& resolved);

/// Throws UsageError for what a new run must not begin with. Runs of earlier builds may have it.
void check_new_run(const TrainConfig& config);

}  // namespace lockstep::cli
