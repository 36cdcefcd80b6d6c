#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/world_locations_internal.h"

namespace lockstep {
namespace {

RankFacts facts(const std::string& identity, std::optional<int> local_rank = {},
                std::optional<int> node_rank = {}, std::optional<int> num_nodes = {}) {
  return {
      identity,  "10.0.0.1", "torchrun", local_rank, local_rank ? std::optional(2) : std::nullopt,
      node_rank, num_nodes};
}

TEST(WorldLocations, FactsAreReadBackAsWritten) {
  for (const auto& each : {facts("a \"quoted\" id"), facts("b", 1, 0, 2)}) {
    EXPECT_EQ(facts_from_text(to_text(each)), each);
  }
  for (const char* text : {"", "{", "1", "[]", "[1,2,3,4,5,6,7]"}) {
    EXPECT_THROW((void)facts_from_text(text), UsageError) << text;
  }
}

TEST(WorldLocations, RanksAreWrittenAsRanges) {
  const auto text = [](const std::vector<int>& ranks) {
    EXPECT_EQ(ranks_from_text(ranks_to_text(ranks)), ranks);
    return ranks_to_text(ranks);
  };
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text({3}), "3");
  EXPECT_EQ(text({0, 1, 2, 3, 5, 7, 8}), "0-3 5 7-8");
  for (const char* wrong :
       {"-", "x", "1-", "-1", "1  2", "65536", "0-65536", "1,2", "2 1", "3-1", "1 1"}) {
    EXPECT_THROW((void)ranks_from_text(wrong), UsageError) << wrong;
  }
}

TEST(WorldLocations, TheTableHasOneLinePerHost) {
  std::vector<RankFacts> all;
  std::vector<int> hosts;
  for (int rank = 0; rank < 1000; ++rank) {
    all.push_back(facts("id", rank % 8, rank / 8, 125));
    all.back().address = "10.0.0." + std::to_string(rank / 8);
    hosts.push_back(rank / 8);
  }
  const auto table = table_of(all, hosts);
  EXPECT_TRUE(table.knows_local);
  EXPECT_TRUE(table.knows_nodes);
  const auto text = to_text(table);
  EXPECT_LT(text.size(), 125U * 32U);
  EXPECT_EQ(table_from_text(text, 1000), table);
  EXPECT_THROW((void)table_from_text(text, 1001), UsageError);  // no host of rank 1000
  for (const char* wrong : {"", "[]", "[true,true,[[0]]]", R"([1,true,[[0,"a","0"]]])",
                            R"([true,true,[[0,"a","1"]]])", R"([true,true,[[1,"a","0"]]])",
                            R"([true,true,[[-1,"a","0"]]])", R"([true,true,[[0,"a","x"]]])"}) {
    EXPECT_THROW((void)table_from_text(wrong, 1), UsageError) << wrong;
  }
}

TEST(WorldLocations, RanksOfOneHostMayHaveDifferentAddresses) {
  std::vector<RankFacts> all{facts("a"), facts("a"), facts("a")};
  all[1].address = "10.0.0.2";
  const auto table = table_of(all, {0, 0, 0});
  EXPECT_FALSE(table.knows_local);
  EXPECT_EQ(table_from_text(to_text(table), 3), table);
}

TEST(WorldLocations, GroupsAreInTheOrderOfTheirLowestRanks) {
  const std::vector<RankFacts> all{facts("z"), facts("a"), facts("z"), facts("m")};
  EXPECT_EQ(groups_by_identity(all), (std::vector<std::vector<int>>{{0, 2}, {1}, {3}}));
}

TEST(WorldLocations, ARankInNoProvenGroupIsASeparateHost) {
  const std::vector<std::vector<int>> proven{{0, 3}, {1}};
  EXPECT_EQ(number_hosts(5, proven), (std::vector<int>{0, 1, 2, 0, 3}));
  EXPECT_EQ(number_hosts(2, {}), (std::vector<int>{0, 1}));
}

TEST(WorldLocations, NodesAreHostsIfTheLauncherGivesNoNodes) {
  const std::vector<RankFacts> all{facts("a"), facts("b"), facts("a")};
  const auto table = table_of(all, {0, 1, 0});
  EXPECT_EQ(locate_rank(0, all[0], table), (RankLocation{0, 0, 2, 0, 2}));
  EXPECT_EQ(locate_rank(1, all[1], table), (RankLocation{1, 0, 1, 1, 2}));
  EXPECT_EQ(locate_rank(2, all[2], table), (RankLocation{0, 1, 2, 0, 2}));
}

TEST(WorldLocations, TheLaunchersPlaceCountsIfItGivesAllRanksOne) {
  std::vector<RankFacts> all{facts("a", 1, 0, 2), facts("a", 0, 1, 2)};
  EXPECT_EQ(locate_rank(0, all[0], table_of(all, {0, 0})), (RankLocation{0, 1, 2, 0, 2}));
  EXPECT_EQ(locate_rank(1, all[1], table_of(all, {0, 0})), (RankLocation{0, 0, 2, 1, 2}));
  all[1].local_size.reset();
  all[1].num_nodes.reset();
  EXPECT_EQ(locate_rank(0, all[0], table_of(all, {0, 0})), (RankLocation{0, 0, 2, 0, 1}));
}

TEST(WorldLocations, ContradictionsNameTheRanks) {
  const auto expect_words = [](const std::vector<RankFacts>& all, const std::string& words) {
    try {
      expect_no_contradiction(all);
      ADD_FAILURE() << "no error";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  EXPECT_NO_THROW(expect_no_contradiction(std::vector{facts("a", 0, 0, 1), facts("a", 1, 0, 1)}));
  expect_words({facts("a", 0, 0, 1), facts("a", 1, 0, 1), facts("a", 0, 0, 1)},
               "torchrun gave ranks 0 and 2 the same local rank 0 of node 0");
  expect_words({facts("a", 0, 0, 1), facts("a", 1, 1, 2)},
               "torchrun gave rank 0 1 nodes, but rank 1 2 nodes");
  auto other = facts("a");
  other.source = "srun (SLURM)";
  expect_words({facts("a"), other}, "rank 0 was placed by torchrun, rank 1 by srun (SLURM)");
}

}  // namespace
}  // namespace lockstep
