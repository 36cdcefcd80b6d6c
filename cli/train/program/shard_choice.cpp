#include "cli/train/program/shard_choice.h"

#include <fmt/format.h>

namespace lockstep::cli {

ShardDecision choose_shard(const ShardFacts& facts) {
  switch (facts.asked) {
    case Sharding::none:
      break;
    case Sharding::optimizer:
      return {Shard::optimizer, fmt::format("divided among {} rank{} (--shard optimizer)",
                                            facts.num_ranks, facts.num_ranks == 1 ? "" : "s")};
    case Sharding::automatic:
      if (facts.num_ranks == 1) {
        return {Shard::none, "not sharded (--shard auto): one rank has nothing to divide"};
      }
      // Ranks on several hosts would send new values after backward, when nothing else runs.
      if (facts.num_hosts > 1) {
        return {Shard::none,
                fmt::format("not sharded (--shard auto): with {} hosts new parameters would be "
                            "sent between them after each backward; give --shard optimizer to "
                            "save memory",
                            facts.num_hosts)};
      }
      return {Shard::optimizer, fmt::format("divided among {} ranks (--shard auto): all of them "
                                            "are on one host",
                                            facts.num_ranks)};
  }
  return {};
}

}  // namespace lockstep::cli
