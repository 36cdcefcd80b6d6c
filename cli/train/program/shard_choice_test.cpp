#include "cli/train/program/shard_choice.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(ShardChoice, AutoShardsOnOneHostWithSeveralRanks) {
  const auto decision =
      choose_shard({.asked = Sharding::automatic, .num_ranks = 4, .num_hosts = 1});
  EXPECT_EQ(decision.shard, Shard::optimizer);
  EXPECT_EQ(decision.reason, "divided among 4 ranks (--shard auto): all of them are on one host");
}

TEST(ShardChoice, AutoStatesWhyItDoesNotShard) {
  const auto alone = choose_shard({.asked = Sharding::automatic, .num_ranks = 1, .num_hosts = 1});
  EXPECT_EQ(alone.shard, Shard::none);
  EXPECT_NE(alone.reason.find("one rank has nothing to divide"), std::string::npos);
  const auto hosts = choose_shard({.asked = Sharding::automatic, .num_ranks = 8, .num_hosts = 2});
  EXPECT_EQ(hosts.shard, Shard::none);
  EXPECT_NE(hosts.reason.find("with 2 hosts"), std::string::npos) << hosts.reason;
  EXPECT_NE(hosts.reason.find("give --shard optimizer"), std::string::npos) << hosts.reason;
}

TEST(ShardChoice, IsTheGivenOneOtherwise) {
  for (const int hosts : {1, 2}) {
    EXPECT_EQ(
        choose_shard({.asked = Sharding::optimizer, .num_ranks = 2, .num_hosts = hosts}).shard,
        Shard::optimizer);
    const auto none = choose_shard({.asked = Sharding::none, .num_ranks = 2, .num_hosts = hosts});
    EXPECT_EQ(none.shard, Shard::none);
    EXPECT_EQ(none.reason, "");
  }
}

}  // namespace
}  // namespace lockstep::cli
