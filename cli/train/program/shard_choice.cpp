#include "cli/train/program/shard_choice.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

Copies choose_copies(const ShardFacts& facts) {
  const bool is_possible = facts.is_on_cpu && facts.num_hosts == 1;
  if (facts.copies == CopiesKind::per_host && !is_possible) {
    throw UsageError(
        fmt::format("--copies per-host needs ranks that share memory, and these {}: leave it out",
                    facts.is_on_cpu ? fmt::format("are on {} hosts", facts.num_hosts)
                                    : std::string("train on GPUs")));
  }
  if (facts.copies == CopiesKind::per_rank || !is_possible) return Copies::per_rank;
  // One rank has one copy anyway, and needs no second one to write to.
  const bool is_alone = facts.copies == CopiesKind::automatic && facts.num_ranks == 1;
  return is_alone ? Copies::per_rank : Copies::per_host;
}

ShardDecision sharded(const ShardFacts& facts, Shard shard, std::string_view why) {
  const auto copies = choose_copies(facts);
  return {shard, copies,
          fmt::format("divided among {} rank{}{} ({}); one copy of the parameters per {}",
                      facts.num_ranks, facts.num_ranks == 1 ? "" : "s",
                      shard == Shard::gradients ? ", with the gradients" : "", why,
                      copies == Copies::per_host ? "host" : "rank")};
}

ShardDecision whole(std::string_view why) {
  return {Shard::none, Copies::per_rank, fmt::format("not sharded (--shard auto): {}", why)};
}

}  // namespace

ShardDecision choose_shard(const ShardFacts& facts) {
  switch (facts.shard) {
    case Sharding::none:
      break;
    case Sharding::optimizer:
      return sharded(facts, Shard::optimizer, "--shard optimizer");
    case Sharding::gradients:
      return sharded(facts, Shard::gradients, "--shard gradients");
    case Sharding::automatic:
      if (facts.num_ranks == 1) return whole("one rank has nothing to divide");
      if (facts.cuda_graph) {
        return whole("with --cuda-graph, because a CUDA graph cannot contain the calls of shards");
      }
      // Ranks on several hosts would send new values after backward, when nothing else runs.
      if (facts.num_hosts > 1) {
        return whole(
            fmt::format("with {} hosts new parameters would be sent between them after each "
                        "backward; give --shard optimizer to save memory",
                        facts.num_hosts));
      }
      return sharded(facts, Shard::optimizer, "--shard auto: all of them are on one host");
  }
  return {};
}

}  // namespace lockstep::cli
