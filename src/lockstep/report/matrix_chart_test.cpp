#include "lockstep/report/matrix_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace lockstep {
namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(MatrixChart, EveryFigureHasACellAndTheLargestTheDarkestShade) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto svg = matrix_svg_file({{.title = "Rates <both> ways",
                                     .names = {"rank 0", "rank 1"},
                                     .values = {{none, 2e9}, {0.1e9, none}},
                                     .unit = Unit::bytes_rate}});
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n")) << svg;
  EXPECT_NE(svg.find("Rates &lt;both&gt; ways"), std::string::npos);
  EXPECT_EQ(count_of(svg, ">rank 1</text>"), 2U);
  EXPECT_EQ(count_of(svg, "fill=\"var(--h"), 2U);  // the diagonal is empty
  EXPECT_EQ(count_of(svg, "fill=\"var(--h6)\""), 1U);
  EXPECT_EQ(count_of(svg, "fill=\"var(--h1)\""), 1U);
  EXPECT_NE(svg.find(figure_text(2e9, Unit::bytes_rate)), std::string::npos);
}

}  // namespace
}  // namespace lockstep
