// Which processors each local rank gets, and how many threads it should use on them.
//
// Rules, in this order. Every rank gets the same number of threads: the slowest rank sets the pace,
// and equal numbers split sums alike. A rank stays on one node if there are no fewer ranks than
// nodes; with fewer, it gets whole nodes, so that none is idle. Ranks of a node share its cores in
// equal, contiguous parts. More ranks than cores share cores, one thread each.
#pragma once

#include <vector>

#include "lockstep/machine/cpu_topology.h"

namespace lockstep {

struct CoreShare {
  std::vector<int> processors = {};  // sorted
  int threads = 1;
};

/// One share for each rank from 0 to `local_ranks` - 1. Throws UsageError unless there is a rank
/// and a core.
[[nodiscard]] std::vector<CoreShare> plan_cores(const CpuTopology& topology, int local_ranks);

}  // namespace lockstep
