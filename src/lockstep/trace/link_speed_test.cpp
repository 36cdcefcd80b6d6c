#include "lockstep/trace/link_speed.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr double kMb = 1e6;

TEST(LinkSpeeds, AreBytesPerBusySecondOfTheInterval) {
  const std::vector<LinkCount> before{{1, 100 * kMb, 1}, {2, 50 * kMb, 7}};
  const std::vector<LinkCount> now{{1, 300 * kMb, 1.5}, {2, 60 * kMb, 8}, {3, 30 * kMb, 0.5}};
  const auto speeds = link_speeds(before, now);
  EXPECT_EQ(speeds.slowest_peer, 2);
  EXPECT_DOUBLE_EQ(speeds.slowest_mb_per_s, 10);
  EXPECT_DOUBLE_EQ(speeds.fastest_mb_per_s, 400);
}

TEST(LinkSpeeds, AreUnknownWhereLittleWasSent) {
  const std::vector<LinkCount> before{{1, kMb, 1}};
  const auto speeds = link_speeds(before, std::vector<LinkCount>{{1, kMb + 1000, 1.5}});
  EXPECT_EQ(speeds.slowest_peer, -1);
  EXPECT_EQ(speeds.slowest_mb_per_s, 0);
  EXPECT_EQ(link_speeds({}, {}).slowest_peer, -1);
}

TEST(SlowLink, TheRankOfAllSlowLinksIsNamed) {
  // Rank 2 is behind 12.5 MB/s in both directions.
  const auto found = find_slow_link(
      std::vector<RankSpeeds>{{0, {2, 12.1, 900}}, {1, {2, 12.4, 800}}, {2, {0, 6.2, 6.3}}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->text, "the links of rank 2 move 6.2 MB/s, others 900.0 MB/s");
}

TEST(SlowLink, ARankThatOnlySendsSlowlyIsNamed) {
  const auto found = find_slow_link(
      std::vector<RankSpeeds>{{0, {1, 700, 900}}, {1, {0, 800, 850}}, {2, {1, 12, 12.5}}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
}

TEST(SlowLink, ARankThatOnlyReceivesSlowlyIsNamed) {
  const auto found = find_slow_link(
      std::vector<RankSpeeds>{{0, {2, 12, 900}}, {1, {2, 12, 850}}, {2, {1, 700, 800}}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
}

TEST(SlowLink, OneLinkIsNamedByItsTwoRanks) {
  const auto found = find_slow_link(
      std::vector<RankSpeeds>{{0, {2, 12, 900}}, {1, {2, 800, 850}}, {2, {0, 13, 800}}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, std::nullopt);
  EXPECT_EQ(found->text, "the link between ranks 0 and 2 moves 12.0 MB/s, others 900.0 MB/s");
}

TEST(SlowLink, NothingIsNamedIfAllLinksAreAlike) {
  EXPECT_FALSE(
      find_slow_link(std::vector<RankSpeeds>{{0, {1, 11, 12}}, {1, {0, 10, 12}}, {2, {1, 9, 12}}}));
  EXPECT_FALSE(find_slow_link(std::vector<RankSpeeds>{{0, {1, 12, 12}}, {1, {0, 12, 12}}}));
  EXPECT_FALSE(find_slow_link(std::vector<RankSpeeds>{{0, {}}, {1, {}}}));
  EXPECT_FALSE(find_slow_link({}));
}

// Two slow links without a rank in common: no rank is the cause.
TEST(SlowLink, UnrelatedSlowLinksNameNoRank) {
  EXPECT_FALSE(find_slow_link(std::vector<RankSpeeds>{
      {0, {1, 12, 900}}, {1, {0, 12, 900}}, {2, {3, 12, 900}}, {3, {2, 12, 900}}}));
}

}  // namespace
}  // namespace lockstep
