// The form of charts as a file of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/report/chart.h"
#include "lockstep/report/chart_frame_internal.h"

namespace lockstep {
namespace {

constexpr double kWidth = 910;
constexpr double kLeft = 76;
constexpr double kRight = 240;  // for the names at the ends of the lines
constexpr double kTop = 48;
constexpr double kBottom = 56;
constexpr double kPlot = kWidth - kLeft - kRight;

std::string text_at(double x, double y, std::string_view css_class, std::string_view text) {
  return fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>)"
                     "\n",
                     css_class, x, y, escaped(text));
}

std::string grid_svg(const Chart& chart, const ChartFrame& frame, double height) {
  std::string svg;
  for (const double value : frame.y.ticks.at) {
    const double y = height * (1 - frame.y(value));
    svg += fmt::format(R"(<line class="rule" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)"
                       "\n",
                       kPlot, y, y);
    svg += text_at(-8, y + 4, "ty", tick_text(value, frame.y.ticks.step, chart.y.unit));
  }
  double last = -1e9;
  for (const double value : frame.x.ticks.at) {
    const double x = kPlot * frame.x(value);
    svg += fmt::format(R"(<line class="rule" x1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)"
                       "\n",
                       x, x, height);
    if (x - last < 56) continue;  // labels must not overlap
    last = x;
    svg += text_at(x, height + 18, "tx", tick_text(value, frame.x.ticks.step, chart.x.unit));
  }
  return svg;
}

std::string dots_svg(const Chart& chart, const ChartFrame& frame, double height) {
  std::string svg;
  for (const auto& series : chart.series) {
    if (series.style == LineStyle::dashed || series.style == LineStyle::faint) continue;
    for (const auto& point : series.points) {
      if (!std::isfinite(point.mean)) continue;
      svg += fmt::format(
          R"(<circle class="c{}" cx="{:.1f}" cy="{:.1f}" r="3.5"><title>{}: {}, {}</title></circle>)"
          "\n",
          series.color, kPlot * frame.x(point.x), height * (1 - frame.y(point.mean)),
          escaped(series.name), escaped(figure_text(point.x, chart.x.unit)),
          escaped(figure_text(point.mean, chart.y.unit)));
    }
  }
  return svg;
}

// Names are at the right ends of the lines, moved apart where they would overlap.
std::string names_svg(const Chart& chart, const ChartFrame& frame, double height) {
  std::vector<std::pair<double, const ChartSeries*>> names;
  for (const auto& series : chart.series) {
    if (series.points.empty()) continue;
    names.emplace_back(height * (1 - frame.y(series.points.back().mean)), &series);
  }
  std::ranges::sort(names, {}, [](const auto& name) { return name.first; });
  std::string svg;
  double last = -1e9;
  for (const auto& [y, series] : names) {
    last = std::max(y + 4, last + 17);
    svg += text_at(kPlot + 12, last, fmt::format("name c{}", series->color), series->name);
  }
  return svg;
}

std::string panel_svg(const Chart& chart, double top) {
  const double height = chart.height - kTop - kBottom;
  const auto frame = frame_of(chart, 8, static_cast<int>(height / 50));
  return fmt::format(
      R"svg(<g transform="translate({left:.0f} {top:.0f})">
{title}{grid}<svg width="{plot:.1f}" height="{height:.1f}" viewBox="0 0 1000 1000" preserveAspectRatio="none" overflow="visible">{curves}</svg>
{dots}{names}{x_title}</g>
)svg",
      fmt::arg("left", kLeft), fmt::arg("top", top + kTop),
      fmt::arg("title", text_at(0, -26, "heading", chart.title)),
      fmt::arg("grid", grid_svg(chart, frame, height)), fmt::arg("plot", kPlot),
      fmt::arg("height", height), fmt::arg("curves", curves_svg(chart, frame)),
      fmt::arg("dots", dots_svg(chart, frame, height)),
      fmt::arg("names", names_svg(chart, frame, height)),
      fmt::arg("x_title", text_at(kPlot / 2, height + 42, "tx", chart.x.title)));
}

}  // namespace

std::string chart_svg_file(const std::vector<Chart>& charts) {
  std::string panels;
  double top = 0;
  for (const auto& chart : charts) {
    if (!has_values(chart)) continue;
    panels += panel_svg(chart, top);
    top += chart.height;
  }
  return svg_file(kWidth, top, panels);
}

}  // namespace lockstep
