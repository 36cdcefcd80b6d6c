// Which values of a configuration cannot be, or not together.
#pragma once

#include "cli/train/settings.h"

namespace lockstep::cli {

/// Throws UsageError that names the settings, their values and what would do. May fill in what
/// follows from the others: the schedule, the accumulation.
void check(ResolvedConfig& resolved);

}  // namespace lockstep::cli
