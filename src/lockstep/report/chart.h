// Charts as SVG, for pages and files, by one writer. A chart is a value; the functions are pure.
//
// In a page a chart fills the width that it gets, and its text keeps its size: horizontal positions
// are fractions of the width. Colors are classes (c1 to c8, p0 to p7) that the page's style defines
// for light and dark. The numbers are beside the picture as JSON, for the page's script: it shows
// values under the pointer and zooms. Without scripts the picture is complete.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/report/downsample.h"
#include "lockstep/report/figure_text.h"

namespace lockstep {

struct ChartAxis {
  std::string title = {};
  Unit unit = Unit::plain;
  bool logarithmic = false;
  bool from_zero = false;          // the axis begins at 0
  std::optional<double> low = {};  // nullopt: from the data
  std::optional<double> high = {};
};

enum class LineStyle {
  line,   // with the range of downsampled values as a band
  faint,  // thin, in the background
  dashed,
  points,  // a dashed line with dots, for few values
};

struct ChartSeries {
  std::string name = {};
  int color = 1;  // 1 to 8
  LineStyle style = LineStyle::line;
  std::vector<CurvePoint> points = {};  // x ascends
};

/// A vertical line with a label, for example a restart.
struct ChartMark {
  double x = 0;
  std::string text = {};
  std::string css_class = {};
};

struct Chart {
  std::string id = {};  // unique in a page: letters and -
  std::string title = {};
  std::string note = {};  // one sentence below the title: what the chart shows
  ChartAxis x = {};
  ChartAxis y = {};
  std::vector<ChartSeries> series = {};
  std::vector<ChartMark> marks = {};
  double height = 260;  // CSS pixels
};

/// A figure element for a page: title, legend with the last value of each series, picture, numbers.
/// Empty if no series has a value.
[[nodiscard]] std::string chart_html(const Chart& chart);

/// An SVG file of its own, with the charts below each other and the names of the series at the ends
/// of their lines.
[[nodiscard]] std::string chart_svg_file(const std::vector<Chart>& charts);

/// The style rules that charts use, for light and dark.
[[nodiscard]] std::string chart_style();
/// A file of its own with chart_style() and `content`, in SVG units.
[[nodiscard]] std::string svg_file(double width, double height, const std::string& content);

}  // namespace lockstep
