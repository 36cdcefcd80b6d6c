#include "lockstep/launch/live_line.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(LiveLine, TheTextIsReadBackFromTheLine) {
  for (const std::string text : {"step 3", "", "μ ; \x1b[1mbold"}) {
    auto line = live_line(text);
    ASSERT_TRUE(line.ends_with('\n'));
    line.pop_back();
    EXPECT_EQ(try_live_text(line), text);
  }
}

TEST(LiveLine, OrdinaryLinesAreNotLiveLines) {
  EXPECT_EQ(try_live_text("step 3"), std::nullopt);
  EXPECT_EQ(try_live_text(""), std::nullopt);
  EXPECT_EQ(try_live_text("\x1b]0;a window's title\a"), std::nullopt);
}

TEST(LiveLine, WithoutATerminalThereAreNoColumns) {
  EXPECT_EQ(live_columns(Environment({})), std::nullopt);
  EXPECT_EQ(live_columns(Environment({{"LOCKSTEP_LIVE_COLUMNS", "80"}})), 80);
  EXPECT_EQ(live_columns(Environment({{"LOCKSTEP_LIVE_COLUMNS", "wide"}})), std::nullopt);
}

}  // namespace
}  // namespace lockstep
