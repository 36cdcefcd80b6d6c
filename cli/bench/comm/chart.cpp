// The chart of report.h: SVG text, one panel per op and dtype, one below the other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/bench/comm/report.h"

namespace lockstep::cli {
namespace {

constexpr double kWidth = 910;
constexpr double kHeight = 440;  // of a panel
constexpr double kLeft = 76;
constexpr double kRight = 240;  // room for the names at the ends of the lines
constexpr double kTop = 48;
constexpr double kBottom = 56;

struct Point {
  double bytes = 0;
  double seconds = 0;
};

struct Line {
  std::string name = {};
  std::string color = {};
  bool dashed = false;
  std::vector<Point> points = {};
};

// Maps a value to a coordinate, logarithmically.
class Axis {
 public:
  Axis(double low, double high, double from, double to)
      : low_(std::log10(low)), high_(std::log10(high)), from_(from), to_(to) {}
  [[nodiscard]] double operator()(double value) const {
    return from_ + (std::log10(value) - low_) / (high_ - low_) * (to_ - from_);
  }

 private:
  double low_;
  double high_;
  double from_;
  double to_;
};

std::string time_in_words(double seconds) {
  if (seconds < 0.999e-6) return fmt::format("{:g} ns", std::round(seconds * 1e11) / 100);
  if (seconds < 0.999e-3) return fmt::format("{:g} µs", std::round(seconds * 1e8) / 100);
  if (seconds < 0.999) return fmt::format("{:g} ms", std::round(seconds * 1e5) / 100);
  return fmt::format("{:g} s", seconds);
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view more = "") {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>)"
                     "\n",
                     x, y, anchor, more, text);
}

bool same_panel(const CommCase& a, const CommCase& b) { return a.op == b.op && a.dtype == b.dtype; }

// The rows of the panel that `first` begins.
std::vector<const CommRow*> panel_rows(const CommReport& report, const CommRow& first) {
  std::vector<const CommRow*> rows;
  for (const auto& row : report.rows) {
    if (same_panel(row.timed, first.timed)) rows.push_back(&row);
  }
  std::ranges::stable_sort(rows, {}, [](const CommRow* row) { return row->timed.bytes; });
  return rows;
}

std::vector<Line> lines_of(const CommReport& report, const std::vector<const CommRow*>& rows) {
  // Colors that readers with color vision deficiency can tell apart (Okabe and Ito).
  std::vector<Line> lines{{"lockstep, registered memory", "#0072B2"},
                          {"lockstep, ordinary memory", "#3A9BD9"},
                          {"bound by in-place add", "#777777", true}};
  const std::string peer_colors[] = {"#D55E00", "#009E73", "#CC79A7"};
  for (std::size_t peer = 1; peer < report.names.size(); ++peer) {
    lines.push_back({report.names[peer] == "gloo"  ? "PyTorch Gloo"
                     : report.names[peer] == "mpi" ? "Open MPI"
                                                   : report.names[peer],
                     peer_colors[(peer - 1) % std::size(peer_colors)]});
  }
  const auto add = [](Line& line, double bytes, double seconds) {
    if (line.points.empty() || line.points.back().bytes < bytes) {
      line.points.push_back({bytes, seconds});
    }
  };
  for (const auto* row : rows) {
    const auto bytes = static_cast<double>(row->timed.bytes);
    add(lines[row->timed.memory == MemoryKind::registered ? 0 : 1], bytes,
        row->backends.front().value().p50);
    add(lines[2], bytes, rates_of(*row, report.request.ranks).bound);
    for (std::size_t peer = 1; peer < row->backends.size(); ++peer) {
      if (row->backends[peer]) add(lines[peer + 2], bytes, row->backends[peer]->p50);
    }
  }
  std::erase_if(lines, [](const Line& line) { return line.points.empty(); });
  return lines;
}

struct Frame {
  Axis x;
  Axis y;
  double low = 0;  // of the time axis, powers of ten
  double high = 0;
};

Frame frame_of(const std::vector<Line>& lines, double top) {
  double least = 1e9;
  double most = 0;
  double first = 1e18;
  double last = 0;
  for (const auto& line : lines) {
    for (const auto& point : line.points) {
      least = std::min(least, point.seconds);
      most = std::max(most, point.seconds);
      first = std::min(first, point.bytes);
      last = std::max(last, point.bytes);
    }
  }
  if (first == last) {  // one size: in the middle of the panel
    first /= 2;
    last *= 2;
  }
  const double low = std::pow(10, std::floor(std::log10(least)));
  double high = std::pow(10, std::ceil(std::log10(most)));
  if (high <= low) high = low * 10;
  return {Axis(first, last, kLeft, kWidth - kRight),
          Axis(low, high, top + kHeight - kBottom, top + kTop), low, high};
}

std::string grid(const Frame& frame, const std::vector<Line>& lines, double top) {
  std::string svg;
  const double bottom = top + kHeight - kBottom;
  const int decades = static_cast<int>(std::lround(std::log10(frame.high / frame.low)));
  for (int i = 0; i <= decades; ++i) {
    const double value = frame.low * std::pow(10, i);
    const double y = frame.y(value);
    svg += fmt::format(R"(<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)"
                       "\n",
                       kLeft, y, kWidth - kRight, y);
    svg += text_at(kLeft - 8, y + 4, "end", time_in_words(value));
  }
  std::vector<double> sizes;
  for (const auto& line : lines) {
    for (const auto& point : line.points) sizes.push_back(point.bytes);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  double last_label = -1e9;
  for (const double bytes : sizes) {
    const double x = frame.x(bytes);
    svg += fmt::format(R"(<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)"
                       "\n",
                       x, top + kTop, x, bottom);
    if (x - last_label < 56) continue;  // labels must not overlap
    last_label = x;
    svg += text_at(x, bottom + 18, "middle", size_in_words(static_cast<std::size_t>(bytes)));
  }
  return svg;
}

std::string line_svg(const Line& line, const Frame& frame) {
  std::string coordinates;
  std::string circles;
  for (const auto& point : line.points) {
    const double x = frame.x(point.bytes);
    const double y = frame.y(point.seconds);
    coordinates += fmt::format("{:.1f},{:.1f} ", x, y);
    if (line.dashed) continue;
    circles += fmt::format(
        R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="{}"><title>{}: {}, {}</title></circle>)"
        "\n",
        x, y, line.color, line.name, size_in_words(static_cast<std::size_t>(point.bytes)),
        time_in_words(point.seconds));
  }
  return fmt::format(R"(<polyline points="{}" stroke="{}"{}/>)"
                     "\n{}",
                     coordinates, line.color, line.dashed ? R"( stroke-dasharray="5 4")" : "",
                     circles);
}

// Names are at the right ends of the lines, moved apart where they would overlap.
std::string names_svg(const std::vector<Line>& lines, const Frame& frame) {
  std::vector<std::pair<double, const Line*>> names;
  for (const auto& line : lines) names.emplace_back(frame.y(line.points.back().seconds), &line);
  std::ranges::sort(names, {}, [](const auto& name) { return name.first; });
  std::string svg;
  double last = -1e9;
  for (const auto& [y, line] : names) {
    last = std::max(y + 4, last + 17);
    svg += text_at(kWidth - kRight + 12, last, "start", line->name,
                   fmt::format(R"( fill="{}" font-weight="600")", line->color));
  }
  return svg;
}

std::string panel(const CommReport& report, const CommRow& first, double top) {
  const auto lines = lines_of(report, panel_rows(report, first));
  const auto frame = frame_of(lines, top);
  auto svg = text_at(kLeft, top + 22, "start",
                     fmt::format("{}, {}, {} ranks on {} cores: time of one call (p50 of the "
                                 "slowest rank)",
                                 to_string(first.timed.op), to_string(first.timed.dtype),
                                 report.request.ranks, report.machine.cpu.num_cores()),
                     R"( font-size="15" font-weight="600")");
  svg += text_at((kLeft + kWidth - kRight) / 2, top + kHeight - 14, "middle", "size of the array");
  svg += grid(frame, lines, top);
  for (const auto& line : lines) svg += line_svg(line, frame);
  return svg + names_svg(lines, frame);
}

}  // namespace

std::string svg_text(const CommReport& report) {
  std::string panels;
  double top = 0;
  for (auto row = report.rows.begin(); row != report.rows.end(); ++row) {
    const bool begun = std::any_of(report.rows.begin(), row, [&](const CommRow& earlier) {
      return same_panel(earlier.timed, row->timed);
    });
    if (begun) continue;
    panels += panel(report, *row, top);
    top += kHeight;
  }
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" font-size="12">
<style>.grid {{ stroke: #dddddd; }} polyline {{ fill: none; stroke-width: 2; }}</style>
<rect width="{0:.0f}" height="{1:.0f}" fill="white"/>
{2}</svg>
)",
      kWidth, top, panels);
}

}  // namespace lockstep::cli
