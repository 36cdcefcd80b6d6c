#include "lockstep/launch/rank_list.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(RankList, ConsecutiveRanksBecomeRanges) {
  EXPECT_EQ(format_rank_list(std::vector{7, 0, 1, 2, 3}), "0-3,7");
  EXPECT_EQ(format_rank_list(std::vector{4, 5}), "4,5");
  EXPECT_EQ(format_rank_list(std::vector{4}), "4");
  EXPECT_EQ(format_rank_list({}), "");
}

TEST(RankList, AListIsParsed) {
  EXPECT_EQ(parse_rank_list("0-3,7", 8), (std::vector{0, 1, 2, 3, 7}));
  EXPECT_EQ(parse_rank_list("5,1,5-6", 8), (std::vector{1, 5, 6}));
  EXPECT_EQ(parse_rank_list("0", 1), std::vector{0});
}

TEST(RankList, AnythingElseIsRefusedWithAnExample) {
  for (const char* text : {"", "a", "1-", "-1", "3-1", "1,,2", "1,", "8", "1 ", "1-2-3"}) {
    EXPECT_THROW((void)parse_rank_list(text, 8), UsageError) << text;
  }
}

}  // namespace
}  // namespace lockstep
