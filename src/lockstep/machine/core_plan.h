// The processors of each local rank, and the number of threads it uses on them.
//
// Rules, in this order. Every rank has the same number of threads: the slowest rank sets the pace,
// and equal thread counts split sums equally. If there are at least as many ranks as NUMA nodes, a
// rank stays on one node; otherwise it gets whole nodes, so that none is idle. The ranks of a node
// divide its cores into equal, contiguous parts. If there are more ranks than cores, ranks use the
// same cores with one thread each.
#pragma once

#include <vector>

#include "lockstep/machine/cpu_topology.h"

namespace lockstep {

struct CoreAssignment {
  std::vector<int> processors = {};  // sorted
  int threads = 1;
};

/// One assignment per rank from 0 to `local_ranks` - 1. Throws UsageError unless there are at least
/// one rank and one core.
[[nodiscard]] std::vector<CoreAssignment> plan_cores(const CpuTopology& topology, int local_ranks);

}  // namespace lockstep
