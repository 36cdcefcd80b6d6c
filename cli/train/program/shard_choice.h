// Decides what the ranks divide among themselves. Pure: the decision depends only on the facts, and
// carries its reason.
#pragma once

#include <string>

#include "cli/train/config.h"
#include "lockstep/flat/shards.h"

namespace lockstep::cli {

struct ShardFacts {
  Sharding shard = Sharding::none;            // --shard
  CopiesKind copies = CopiesKind::automatic;  // --copies
  bool is_on_cpu = true;
  bool cuda_graph = false;  // --cuda-graph
  int num_ranks = 1;
  int num_hosts = 1;
};

struct ShardDecision {
  Shard shard = Shard::none;
  Copies copies = Copies::per_rank;
  std::string reason;  // of both, for the start of the run; empty for --shard none
};

/// Throws UsageError for --copies per-host with several hosts or on GPUs.
[[nodiscard]] ShardDecision choose_shard(const ShardFacts& facts);

}  // namespace lockstep::cli
