#include "lockstep/report/chart.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

Chart example() {
  return {
      .id = "loss",
      .title = "Loss",
      .x = {.title = "step", .unit = Unit::count},
      .y = {},
      .series = {{.name = "training",
                  .color = 1,
                  .points = {{1, 5, 4, 6}, {2, 3, 3, 3}, {3, std::nan(""), 0, 0}, {4, 2, 2, 2}}},
                 {.name = "validation",
                  .color = 2,
                  .style = LineStyle::points,
                  .points = {{2, 3.5, 3.5, 3.5}, {4, 2.5, 2.5, 2.5}}}}};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

nlohmann::json data_of(const std::string& html) {
  const std::string begin = "<script type=\"application/json\">";
  const auto from = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(from, html.find("</script>") - from));
}

TEST(Chart, HasALinePerSeriesABandForRangesAndDotsForPoints) {
  const auto html = chart_html(example());
  EXPECT_EQ(count(html, "<path class=\"line"), 2U);
  EXPECT_EQ(count(html, "<path class=\"band"), 1U);
  EXPECT_EQ(count(html, "<circle"), 2U);
  EXPECT_NE(html.find("validation <b>2.5</b>"), std::string::npos);
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(Chart, AGapEndsALineAndTheNextValueBeginsAnotherOne) {
  const auto html = chart_html(example());
  const auto line = html.substr(html.find("<path class=\"line c1"));
  EXPECT_EQ(count(line.substr(0, line.find("/>")), "M"), 2U);
}

TEST(Chart, TheNumbersBesideThePictureAreThoseOfTheSeries) {
  const auto json = data_of(chart_html(example()));
  EXPECT_EQ(json["series"][0]["y"].dump(), "[5,3,null,2]");
  EXPECT_EQ(json["series"][0]["hi"][0], 6);
  EXPECT_EQ(json["series"][1]["n"], "validation");
}

TEST(Chart, NamesCannotBecomeMarkup) {
  auto chart = example();
  chart.series[0].name = "</script><b>\"x\"";
  const auto html = chart_html(chart);
  EXPECT_EQ(count(html, "</script>"), 1U);
  EXPECT_EQ(data_of(html)["series"][0]["n"], chart.series[0].name);
}

TEST(Chart, WithoutValuesIsEmpty) {
  EXPECT_EQ(chart_html({}), "");
  EXPECT_EQ(chart_html({.series = {{.points = {{1, std::nan(""), 0, 0}}}}}), "");
}

TEST(Chart, OneValueHasFiniteCoordinates) {
  for (const bool logarithmic : {false, true}) {
    const auto html = chart_html({.x = {.logarithmic = logarithmic},
                                  .y = {.logarithmic = logarithmic},
                                  .series = {{.points = {{3, 4, 4, 4}}}}});
    EXPECT_EQ(html.find("nan"), std::string::npos);
    EXPECT_EQ(html.find("inf"), std::string::npos);
    EXPECT_EQ(count(html, "<circle"), 1U);
  }
}

TEST(Chart, TheFileIsOneSvgWithAllChartsAndBothThemes) {
  auto second = example();
  second.title = "Other";
  const auto svg = chart_svg_file({example(), {}, second});
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_NE(svg.find("height=\"520\""), std::string::npos);  // two charts of 260
  EXPECT_EQ(count(svg, "<path class=\"line"), 4U);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
