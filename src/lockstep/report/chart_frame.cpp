#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/report/chart_frame_internal.h"

namespace lockstep {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value, bool logarithmic) {
    if (!std::isfinite(value) || (logarithmic && value <= 0)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] bool empty() const { return low > high; }
};

ChartScale scale_of(Range range, const ChartAxis& axis, int ticks, double margin) {
  if (axis.low) range.low = *axis.low;
  if (axis.high) range.high = *axis.high;
  if (axis.from_zero) range.low = 0;
  if (axis.logarithmic) {
    if (range.low == range.high) range = {range.low / 2, range.high * 2};
    const double grow = std::pow(range.high / range.low, margin);
    range = {range.low / grow, range.high * grow};
    return {range.low, range.high, true, logarithmic_ticks(range.low, range.high, axis.unit)};
  }
  if (!(range.high > range.low)) {
    const double around = range.low == 0 ? 1 : 0.1 * std::abs(range.low);
    range = {axis.from_zero ? 0 : range.low - around, range.high + around};
  }
  const double grow = margin * (range.high - range.low);
  if (!axis.low && !axis.from_zero) range.low -= grow;
  if (!axis.high) range.high += grow;
  return {range.low, range.high, false, linear_ticks(range.low, range.high, ticks, axis.unit)};
}

// A path in the coordinates of 1000 x 1000; a value that is not finite ends a piece.
class Path {
 public:
  Path(const ChartFrame& frame) : frame_(frame) {}

  void add(double x, double y) {
    if (!std::isfinite(y) || (frame_.y.logarithmic && y <= 0)) {
      is_down_ = false;
      return;
    }
    text_ += fmt::format("{}{:.1f} {:.1f}", is_down_ ? "L" : "M", 1000 * frame_.x(x),
                         1000 - 1000 * std::clamp(frame_.y(y), -1.0, 2.0));
    is_down_ = true;
  }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  const ChartFrame& frame_;
  std::string text_;
  bool is_down_ = false;
};

bool is_range(const CurvePoint& point) {
  return std::isfinite(point.mean) && point.low < point.high;
}

// The area between the lowest and the highest values that points replace.
std::string band_svg(const ChartSeries& series, const ChartFrame& frame) {
  if (std::ranges::none_of(series.points, is_range)) return {};
  std::string svg;
  auto begin = series.points.begin();
  const auto is_gap = [](const CurvePoint& point) { return !std::isfinite(point.mean); };
  while (begin != series.points.end()) {
    begin = std::find_if_not(begin, series.points.end(), is_gap);
    const auto end = std::find_if(begin, series.points.end(), is_gap);
    if (end - begin > 1) {
      Path path(frame);
      for (auto point = begin; point != end; ++point) path.add(point->x, point->high);
      for (auto point = end; point != begin; --point) path.add((point - 1)->x, (point - 1)->low);
      svg +=
          fmt::format(R"(<path class="band c{}" d="{}Z"/>)", series.color, std::move(path).text());
    }
    begin = end;
  }
  return svg;
}

std::string_view class_of(LineStyle style) {
  switch (style) {
    case LineStyle::line:
      return "line";
    case LineStyle::faint:
      return "line faint";
    case LineStyle::dashed:
      return "line dashed";
    case LineStyle::points:
      return "line thin";
  }
  return "line";
}

}  // namespace

double ChartScale::operator()(double value) const {
  if (logarithmic) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

bool has_values(const Chart& chart) {
  return std::ranges::any_of(chart.series, [](const ChartSeries& series) {
    return std::ranges::any_of(series.points,
                               [](const CurvePoint& point) { return std::isfinite(point.mean); });
  });
}

ChartFrame frame_of(const Chart& chart, int x_ticks, int y_ticks) {
  Range x;
  Range y;
  for (const auto& series : chart.series) {
    for (const auto& point : series.points) {
      if (!std::isfinite(point.mean)) continue;
      x.add(point.x, chart.x.logarithmic);
      y.add(point.low, chart.y.logarithmic);
      y.add(point.high, chart.y.logarithmic);
    }
  }
  if (x.empty()) x = {1, 10};
  if (y.empty()) y = {1, 10};
  return {scale_of(x, chart.x, x_ticks, chart.x.logarithmic ? 0.02 : 0),
          scale_of(y, chart.y, y_ticks, 0.05)};
}

std::string curves_svg(const Chart& chart, const ChartFrame& frame) {
  std::string svg;
  for (const auto& series : chart.series) svg += band_svg(series, frame);
  for (const auto& series : chart.series) {
    Path path(frame);
    for (const auto& point : series.points) path.add(point.x, point.mean);
    svg += fmt::format(R"(<path class="{} c{}" d="{}"/>)", class_of(series.style), series.color,
                       std::move(path).text());
  }
  return svg;
}

}  // namespace lockstep
