// The order in which the pairs of ranks are measured. Pure.
#pragma once

#include <utility>
#include <vector>

namespace lockstep::cli {

/// All pairs of `num_ranks` ranks, the lower one first, in as few rounds as possible: the pairs of
/// one round have no rank in common, so they can be measured at the same time. This is the circle
/// method of tournaments: N - 1 rounds for an even number of ranks, N for an odd one.
[[nodiscard]] std::vector<std::vector<std::pair<int, int>>> pair_rounds(int num_ranks);

}  // namespace lockstep::cli
