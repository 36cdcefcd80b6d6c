#include "lockstep/launch/console_style.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(WantsColor, TheFlagHasPriority) {
  EXPECT_TRUE(wants_color(ColorChoice::always, {{"NO_COLOR", "1"}, {"TERM", "dumb"}}, false));
  EXPECT_FALSE(wants_color(ColorChoice::never, {{"CLICOLOR_FORCE", "1"}}, true));
}

TEST(WantsColor, TheVariablesHaveTheirDocumentedPriority) {
  constexpr auto automatic = ColorChoice::automatic;
  EXPECT_TRUE(wants_color(automatic, {}, true));
  EXPECT_FALSE(wants_color(automatic, {}, false));
  EXPECT_FALSE(wants_color(automatic, {{"NO_COLOR", "1"}, {"CLICOLOR_FORCE", "1"}}, true));
  EXPECT_TRUE(wants_color(automatic, {{"NO_COLOR", ""}}, true)) << "empty is not set";
  EXPECT_TRUE(wants_color(automatic, {{"CLICOLOR_FORCE", "1"}, {"CLICOLOR", "0"}}, false));
  EXPECT_FALSE(wants_color(automatic, {{"CLICOLOR_FORCE", "0"}}, false));
  EXPECT_FALSE(wants_color(automatic, {{"CLICOLOR", "0"}}, true));
  EXPECT_FALSE(wants_color(automatic, {{"TERM", "dumb"}}, true));
}

TEST(LinePrefix, NamesTheRankAndWithSeveralNodesTheNode) {
  EXPECT_EQ(line_prefix(std::vector{3}, {.size = 8}), "3 | ");
  EXPECT_EQ(line_prefix(std::vector{3}, {.size = 64}), " 3 | ");
  EXPECT_EQ(line_prefix(std::vector{9}, {.size = 16, .node = 1, .num_nodes = 2}), "1: 9 | ");
}

TEST(LinePrefix, CountsTheRanksOfAFoldedLine) {
  EXPECT_EQ(line_prefix(std::vector{0, 1, 2, 3, 4, 5, 6, 7}, {.size = 8}), "ranks 0-7 (8x) | ");
  EXPECT_EQ(line_prefix(std::vector{5, 0, 1, 2}, {.size = 8}), "ranks 0-2,5 (4x) | ");
}

TEST(LinePrefix, NeighborsHaveDifferentColors) {
  const PrefixStyle style{.size = 2, .color = true};
  EXPECT_EQ(line_prefix(std::vector{0}, style), "\x1b[36m0 |\x1b[0m ");
  EXPECT_EQ(line_prefix(std::vector{1}, style), "\x1b[33m1 |\x1b[0m ");
}

TEST(Printable, LeavesTextUnchanged) {
  EXPECT_EQ(printable("a\tb – ü 漢 🙂", false), "a\tb – ü 漢 🙂");
}

TEST(Printable, EscapesControlCharactersAndInvalidUtf8) {
  EXPECT_EQ(printable(std::string_view("a\0b\x07\x7f", 5), false), "a\\x00b\\x07\\x7f");
  EXPECT_EQ(printable("\x1b]0;title\x07", true), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("\xff\xc3", false), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc2\x9b", false), "\\xc2\\x9b") << "a C1 control character";
  EXPECT_EQ(printable("\xed\xa0\x80", false), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xe6\xbc", false), "\\xe6\\xbc") << "cut in the middle";
}

TEST(Printable, ColorsStayOnlyIfRequestedAndEndWithTheLine) {
  EXPECT_EQ(printable("\x1b[1;31mred", true), "\x1b[1;31mred\x1b[0m");
  EXPECT_EQ(printable("\x1b[1;31mred\x1b[0m", false), "red");
}

}  // namespace
}  // namespace lockstep
