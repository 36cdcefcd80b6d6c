// One rank of the all-reduce of `lockstep doctor`, which starts itself with this word as argument.
#pragma once

#include "cli/verb.h"

namespace lockstep::cli {

inline constexpr char kAllReduceRank[] = "all-reduce-rank";
/// The name of the line that rank 0 prints: "result: 1 MiB in 40.1 us, sum exact".
inline constexpr char kAllReduceResult[] = "result";

/// Returns kFailure when a sum is wrong. Collective: every rank of the job runs this.
[[nodiscard]] int run_all_reduce_rank(Streams streams);

}  // namespace lockstep::cli
