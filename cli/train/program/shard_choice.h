// Decides what the ranks divide among themselves. Pure: the decision depends only on the facts, and
// carries its reason.
#pragma once

#include <string>

#include "cli/train/config.h"
#include "lockstep/flat/shards.h"

namespace lockstep::cli {

struct ShardFacts {
  Sharding asked = Sharding::none;
  int num_ranks = 1;
  int num_hosts = 1;
};

struct ShardDecision {
  Shard shard = Shard::none;
  std::string reason;  // "--shard auto: one rank has nothing to divide"; empty for --shard none
};

[[nodiscard]] ShardDecision choose_shard(const ShardFacts& facts);

}  // namespace lockstep::cli
