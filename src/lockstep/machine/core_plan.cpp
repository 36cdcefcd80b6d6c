#include "lockstep/machine/core_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Core = CpuTopology::Core;

// The start of part `index` when `total` elements are divided into `parts`.
std::size_t part_begin(std::size_t total, std::size_t parts, std::size_t index) {
  return total * index / parts;
}

// An assignment with one thread per core.
CoreAssignment assignment_of(std::span<const Core> cores) {
  CoreAssignment assignment;
  for (const Core& core : cores) {
    assignment.processors.insert(assignment.processors.end(), core.processors.begin(),
                                 core.processors.end());
  }
  std::sort(assignment.processors.begin(), assignment.processors.end());
  assignment.threads = static_cast<int>(cores.size());
  return assignment;
}

std::vector<Core> all_cores(const CpuTopology& topology) {
  std::vector<Core> cores;
  for (const auto& node : topology.nodes) {
    cores.insert(cores.end(), node.cores.begin(), node.cores.end());
  }
  return cores;
}

std::vector<CoreAssignment> one_core_each(const CpuTopology& topology, std::size_t ranks) {
  const auto cores = all_cores(topology);
  std::vector<CoreAssignment> assignments;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t core = part_begin(cores.size(), ranks, rank);
    assignments.push_back(assignment_of({&cores[core], 1}));
  }
  return assignments;
}

std::vector<CoreAssignment> whole_nodes_each(const CpuTopology& topology, std::size_t ranks) {
  std::vector<CoreAssignment> assignments;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CpuTopology part;
    const auto nodes = topology.nodes.begin();
    const auto begin = part_begin(topology.nodes.size(), ranks, rank);
    const auto end = part_begin(topology.nodes.size(), ranks, rank + 1);
    part.nodes.assign(nodes + static_cast<std::ptrdiff_t>(begin),
                      nodes + static_cast<std::ptrdiff_t>(end));
    assignments.push_back(assignment_of(all_cores(part)));
  }
  return assignments;
}

// The number of ranks per node: each rank is added to the node with the most cores per rank.
std::vector<std::size_t> ranks_by_node(const CpuTopology& topology, std::size_t ranks) {
  std::vector<std::size_t> counts(topology.nodes.size(), 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < counts.size(); ++i) {
      // cores[i] / (counts[i] + 1) > cores[best] / (counts[best] + 1)
      if (topology.nodes[i].cores.size() * (counts[best] + 1) >
          topology.nodes[best].cores.size() * (counts[i] + 1)) {
        best = i;
      }
    }
    ++counts[best];
  }
  return counts;
}

std::vector<CoreAssignment> parts_of_nodes(const CpuTopology& topology, std::size_t ranks) {
  const auto counts = ranks_by_node(topology, ranks);
  std::vector<CoreAssignment> assignments;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::span<const Core> cores(topology.nodes[i].cores);
    for (std::size_t part = 0; part < counts[i]; ++part) {
      const auto begin = part_begin(cores.size(), counts[i], part);
      const auto end = part_begin(cores.size(), counts[i], part + 1);
      assignments.push_back(assignment_of(cores.subspan(begin, end - begin)));
    }
  }
  return assignments;
}

std::vector<CoreAssignment> divide(const CpuTopology& topology, std::size_t ranks) {
  if (ranks >= static_cast<std::size_t>(topology.num_cores())) {
    return one_core_each(topology, ranks);
  }
  if (ranks < topology.nodes.size()) return whole_nodes_each(topology, ranks);
  return parts_of_nodes(topology, ranks);
}

}  // namespace

std::vector<CoreAssignment> plan_cores(const CpuTopology& topology, int local_ranks) {
  if (local_ranks < 1 || topology.num_cores() < 1) {
    throw UsageError(fmt::format("cannot divide {} cores among {} ranks: both must be at least 1",
                                 topology.num_cores(), local_ranks));
  }
  auto assignments = divide(topology, static_cast<std::size_t>(local_ranks));
  int threads = assignments[0].threads;
  for (const auto& assignment : assignments) threads = std::min(threads, assignment.threads);
  if (topology.quota) {
    threads = std::min(threads, std::max(1, static_cast<int>(*topology.quota / local_ranks)));
  }
  for (auto& assignment : assignments) assignment.threads = threads;
  return assignments;
}

}  // namespace lockstep
