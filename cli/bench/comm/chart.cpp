// The chart of report.h: one panel per op and dtype, one below the other.
#include "lockstep/report/chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/comm/report.h"

namespace lockstep::cli {
namespace {

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

std::vector<ChartSeries> lines_of(const CommReport& report,
                                  const std::vector<const CommRow*>& rows) {
  std::vector<ChartSeries> lines{
      {.name = "lockstep, registered memory", .color = 1},
      {.name = "lockstep, ordinary memory", .color = 6},
      {.name = "bound by in-place add", .color = 8, .style = LineStyle::dashed}};
  const int peer_colors[] = {2, 3, 4};
  for (std::size_t peer = 1; peer < report.names.size(); ++peer) {
    lines.push_back({.name = report.names[peer] == "gloo"  ? "PyTorch Gloo"
                             : report.names[peer] == "mpi" ? "Open MPI"
                                                           : report.names[peer],
                     .color = peer_colors[(peer - 1) % std::size(peer_colors)]});
  }
  const auto add = [](ChartSeries& line, double bytes, double seconds) {
    if (line.points.empty() || line.points.back().x < bytes) {
      line.points.push_back({bytes, seconds, seconds, seconds});
    }
  };
  for (const auto* row : rows) {
    const auto bytes = static_cast<double>(row->timed.bytes);
    add(lines[row->timed.memory == MemoryKind::registered ? 0 : 1], bytes,
        row->backends.front().value().p50);
    if (report.request.on_one_host) {
      add(lines[2], bytes, rates_of(*row, report.request.ranks).bound);
    }
    for (std::size_t peer = 1; peer < row->backends.size(); ++peer) {
      if (row->backends[peer]) add(lines[peer + 2], bytes, row->backends[peer]->p50);
    }
  }
  std::erase_if(lines, [](const ChartSeries& line) { return line.points.empty(); });
  return lines;
}

Chart panel(const CommReport& report, const CommRow& first) {
  return {.title = fmt::format("{}, {}, {}: time of one call (p50 of the slowest rank)",
                               to_string(first.timed.op), to_string(first.timed.dtype),
                               ranks_in_words(report)),
          .x = {.title = "size of the array", .unit = Unit::bytes, .logarithmic = true},
          .y = {.unit = Unit::seconds, .logarithmic = true},
          .series = lines_of(report, panel_rows(report, first)),
          .height = 440};
}

}  // namespace

std::string svg_text(const CommReport& report) {
  std::vector<Chart> panels;
  for (auto row = report.rows.begin(); row != report.rows.end(); ++row) {
    const bool begun = std::any_of(report.rows.begin(), row, [&](const CommRow& earlier) {
      return same_panel(earlier.timed, row->timed);
    });
    if (!begun) panels.push_back(panel(report, *row));
  }
  return chart_svg_file(panels);
}

}  // namespace lockstep::cli
