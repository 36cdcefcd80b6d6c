// How many ranks `lockstep run` starts on a machine.
#pragma once

#include "cli/run/options.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {

/// Pure. Throws UsageError for ranks per GPU on a machine without one, and for more ranks than GPUs
/// unless `options` allow that they share: a program that uses GPUs takes that of its LOCAL_RANK.
[[nodiscard]] int num_ranks_on(const Machine& machine, const LaunchOptions& options);

}  // namespace lockstep::cli
