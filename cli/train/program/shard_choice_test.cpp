#include "cli/train/program/shard_choice.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

TEST(ShardChoice, AutoShardsOnOneHostWithSeveralRanks) {
  const auto decision = choose_shard({.shard = Sharding::automatic, .num_ranks = 4});
  EXPECT_EQ(decision.shard, Shard::optimizer);
  EXPECT_EQ(decision.copies, Copies::per_host);
  EXPECT_EQ(decision.reason,
            "divided among 4 ranks (--shard auto: all of them are on one host); one copy of the "
            "parameters per host");
}

TEST(ShardChoice, AutoStatesWhyItDoesNotShard) {
  const auto alone = choose_shard({.shard = Sharding::automatic, .num_ranks = 1});
  EXPECT_EQ(alone.shard, Shard::none);
  EXPECT_EQ(alone.copies, Copies::per_rank);
  EXPECT_NE(alone.reason.find("one rank has nothing to divide"), std::string::npos);
  const auto hosts = choose_shard({.shard = Sharding::automatic, .num_ranks = 8, .num_hosts = 2});
  EXPECT_EQ(hosts.shard, Shard::none);
  EXPECT_NE(hosts.reason.find("with 2 hosts"), std::string::npos) << hosts.reason;
  EXPECT_NE(hosts.reason.find("give --shard optimizer"), std::string::npos) << hosts.reason;
  const auto graph = choose_shard(
      {.shard = Sharding::automatic, .is_on_cpu = false, .cuda_graph = true, .num_ranks = 2});
  EXPECT_EQ(graph.shard, Shard::none);
  EXPECT_NE(graph.reason.find("with --cuda-graph, because"), std::string::npos) << graph.reason;
}

TEST(ShardChoice, IsTheGivenOneOtherwise) {
  for (const int hosts : {1, 2}) {
    const auto given =
        choose_shard({.shard = Sharding::optimizer, .num_ranks = 2, .num_hosts = hosts});
    EXPECT_EQ(given.shard, Shard::optimizer);
    const auto gradients =
        choose_shard({.shard = Sharding::gradients, .num_ranks = 2, .num_hosts = hosts});
    EXPECT_EQ(gradients.shard, Shard::gradients);
    EXPECT_EQ(gradients.copies, given.copies);
    EXPECT_NE(gradients.reason.find("2 ranks, with the gradients (--shard gradients)"),
              std::string::npos)
        << gradients.reason;
    EXPECT_EQ(given.copies, hosts == 1 ? Copies::per_host : Copies::per_rank);
    const auto none = choose_shard({.shard = Sharding::none, .num_ranks = 2, .num_hosts = hosts});
    EXPECT_EQ(none.shard, Shard::none);
    EXPECT_EQ(none.copies, Copies::per_rank);
    EXPECT_EQ(none.reason, "");
  }
  for (const auto shard : {Sharding::optimizer, Sharding::automatic}) {
    const auto per_rank =
        choose_shard({.shard = shard, .copies = CopiesKind::per_rank, .num_ranks = 2});
    EXPECT_EQ(per_rank.copies, Copies::per_rank);
    EXPECT_NE(per_rank.reason.find("parameters per rank"), std::string::npos);
  }
}

TEST(ShardChoice, OneCopyPerHostIsRefusedWhereRanksShareNoMemory) {
  const auto refusal = [](ShardFacts facts) {
    facts.shard = Sharding::optimizer;
    facts.copies = CopiesKind::per_host;
    facts.num_ranks = 4;
    try {
      (void)choose_shard(facts);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({.num_hosts = 2}).find("are on 2 hosts: leave it out"), std::string::npos);
  EXPECT_NE(refusal({.is_on_cpu = false}).find("train on GPUs: leave it out"), std::string::npos);
  EXPECT_EQ(choose_shard({.shard = Sharding::automatic, .is_on_cpu = false, .num_ranks = 2}).copies,
            Copies::per_rank);
}

}  // namespace
}  // namespace lockstep::cli
