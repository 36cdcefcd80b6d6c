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
  const std::vector<RankFacts> all{facts("a \"quoted\" id"), facts("b", 1, 0, 2)};
  EXPECT_EQ(facts_from_text(to_text(all)), all);
  for (const char* text : {"", "{", "[1]", "[[]]", "[[1,2,3,4,5,6,7]]"}) {
    EXPECT_THROW((void)facts_from_text(text), UsageError) << text;
  }
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
  const auto locations = locate_ranks(all, std::vector{0, 1, 0});
  EXPECT_EQ(locations[0], (RankLocation{0, 0, 2, 0, 2}));
  EXPECT_EQ(locations[1], (RankLocation{1, 0, 1, 1, 2}));
  EXPECT_EQ(locations[2], (RankLocation{0, 1, 2, 0, 2}));
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
