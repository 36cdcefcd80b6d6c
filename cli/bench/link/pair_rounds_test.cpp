#include "cli/bench/link/pair_rounds.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::cli {
namespace {

TEST(PairRounds, EveryPairIsMeasuredOnceAndThePairsOfARoundAreDisjoint) {
  EXPECT_TRUE(pair_rounds(1).empty() || pair_rounds(1).front().empty());
  for (int ranks = 2; ranks <= 17; ++ranks) {
    const auto rounds = pair_rounds(ranks);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(ranks % 2 == 0 ? ranks - 1 : ranks));
    std::set<std::pair<int, int>> all;
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& pair : round) {
        EXPECT_LT(pair.first, pair.second);
        EXPECT_LT(pair.second, ranks);
        EXPECT_TRUE(all.insert(pair).second) << pair.first << " and " << pair.second;
        EXPECT_TRUE(busy.insert(pair.first).second && busy.insert(pair.second).second);
      }
    }
    EXPECT_EQ(all.size(), static_cast<std::size_t>(ranks * (ranks - 1) / 2));
  }
}

}  // namespace
}  // namespace lockstep::cli
