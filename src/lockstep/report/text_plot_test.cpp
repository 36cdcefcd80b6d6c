#include "lockstep/report/text_plot.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

TEST(TextPlot, DrawsPointsAtTheirCells) {
  const auto text = text_plot({{'.', {{0, 4}, {50, 2}, {100, 1}}}, {'o', {{100, 1}}}},
                              {.width = 11, .height = 3});
  EXPECT_EQ(text,
            "       4 |.\n"
            "         |     .\n"
            "       1 |          o\n"
            "         +-----------\n"
            "          step 0  100\n");
}

TEST(TextPlot, LeavesOutPointsThatAreNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(text_plot({{'.', {{0, 4}, {1, nan}, {2, 1}}}}, {.width = 8, .height = 2}),
            text_plot({{'.', {{0, 4}, {2, 1}}}}, {.width = 8, .height = 2}));
}

TEST(TextPlot, IsEmptyForOnePoint) {
  EXPECT_EQ(text_plot({}), "");
  EXPECT_EQ(text_plot({{'.', {{1, 1}}}}), "");
}

TEST(TextPlot, DrawsAFlatCurve) {
  EXPECT_NE(text_plot({{'.', {{0, 1}, {1, 1}}}}).find('.'), std::string::npos);
}

}  // namespace
}  // namespace lockstep
