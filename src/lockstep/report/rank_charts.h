// Pictures with one line per rank or bucket, for a page. Pure functions; empty without rows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/trace/run_analysis.h"

namespace lockstep {

/// Where the time of a step goes on each rank: one stacked bar per rank.
[[nodiscard]] std::string split_html(const RunAnalysis& analysis);

/// Which rank is late, and when: ranks from top to bottom, steps from left to right, the color
/// states by which fraction of a step the others waited.
[[nodiscard]] std::string heat_map_html(std::span<const std::vector<RankInterval>> ranks);

/// The all-reduces of one backward pass: when each bucket was ready, waited for other ranks, and
/// was reduced, with its bandwidth.
[[nodiscard]] std::string buckets_html(const RunAnalysis& analysis);

}  // namespace lockstep
