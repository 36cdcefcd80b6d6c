#include "lockstep/report/text_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  /// The index of the value's cell when the range is split into `cells` equal parts.
  [[nodiscard]] int cell(double value, int cells) const {
    if (most == least) return 0;
    const double position = (value - least) / (most - least) * cells;
    return std::clamp(static_cast<int>(position), 0, cells - 1);
  }
};

bool is_finite(const PlotPoint& point) { return std::isfinite(point.x) && std::isfinite(point.y); }

}  // namespace

std::string text_plot(const std::vector<PlotCurve>& curves, const PlotOptions& options) {
  Range x;
  Range y;
  std::size_t count = 0;
  for (const auto& curve : curves) {
    for (const auto& point : curve.points) {
      if (!is_finite(point)) continue;
      x.add(point.x);
      y.add(point.y);
      ++count;
    }
  }
  if (count < 2) return {};
  std::vector<std::string> lines(static_cast<std::size_t>(options.height),
                                 std::string(static_cast<std::size_t>(options.width), ' '));
  for (const auto& curve : curves) {
    for (const auto& point : curve.points) {
      if (!is_finite(point)) continue;
      const auto row = options.height - 1 - y.cell(point.y, options.height);
      const auto column = x.cell(point.x, options.width);
      lines[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] = curve.mark;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto label = i == 0                  ? fmt::format("{:.3g}", y.most)
                       : i + 1 == lines.size() ? fmt::format("{:.3g}", y.least)
                                               : std::string();
    const auto end = lines[i].find_last_not_of(' ');
    text += fmt::format("{:>8} |{}\n", label, lines[i].substr(0, end + 1));
  }
  text += fmt::format("{:>8} +{}\n", "", std::string(static_cast<std::size_t>(options.width), '-'));
  const auto first = fmt::format("{} {}", options.x_name, x.least);
  text += fmt::format("{:>10}{}{:>{}}\n", "", first, x.most,
                      options.width - static_cast<int>(first.size()));
  return text;
}

}  // namespace lockstep
