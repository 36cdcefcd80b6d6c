// The number of ranks that `lockstep run` starts on a machine.
#pragma once

#include "cli/run/options.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {

/// Pure. Throws UsageError for one rank per GPU on a machine without GPUs, and for more ranks than
/// GPUs unless `options` allow it: a program that uses GPUs uses the one of its LOCAL_RANK.
[[nodiscard]] int num_ranks_on(const Machine& machine, const RunCommandOptions& options);

}  // namespace lockstep::cli
