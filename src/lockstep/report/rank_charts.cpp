#include "lockstep/report/rank_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/report/axis_ticks.h"
#include "lockstep/report/figure_text.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kNumStepParts> kPartNames{
    "data wait", "forward",    "backward",         "exposed communication",
    "optimizer", "evaluation", "checkpoint stall", "other"};

constexpr int kMaxBars = 64;  // of ranks; more are represented by the slowest ones

std::string milliseconds(double value) { return figure_text(value, Unit::milliseconds); }

// One part of a bar; positions are percentages.
std::string bar_part(double from, double width, std::string_view css_class,
                     const std::string& title) {
  return fmt::format(
      R"(<rect class="{}" x="{:.2f}%" width="{:.2f}%" height="100%"><title>{}</title></rect>)",
      css_class, from, width, escaped(title));
}

std::string split_bar(const RankSummary& rank, double longest) {
  std::string bar;
  double at = 0;
  for (std::size_t part = 0; part < kNumStepParts; ++part) {
    const double width = 100 * rank.split_ms[part] / longest;
    if (width > 0.02) {
      bar += bar_part(at, width, fmt::format("p{}", part),
                      fmt::format("rank {}: {} {}, {} of the step", rank.rank, kPartNames[part],
                                  milliseconds(rank.split_ms[part]),
                                  figure_text(rank.split_ms[part] / rank.step_ms, Unit::fraction)));
    }
    at += width;
  }
  return bar;
}

struct HeatGrid {
  std::size_t columns = 0;
  std::size_t rows = 0;
  std::size_t ranks_per_row = 1;
  double first = 0;  // step
  double last = 0;
  std::vector<double> late_ms;   // row by row; NaN: no value
  std::vector<double> fraction;  // of a step
};

// The worst rank of a row, the mean over time of a column.
HeatGrid grid_of(std::span<const std::vector<RankInterval>> ranks) {
  constexpr std::size_t kMaxRows = 128;
  constexpr std::size_t kMaxCells = 4000;
  HeatGrid grid;
  grid.ranks_per_row = (ranks.size() + kMaxRows - 1) / kMaxRows;
  grid.rows = (ranks.size() + grid.ranks_per_row - 1) / grid.ranks_per_row;
  std::size_t intervals = 0;
  grid.first = 1e300;
  for (const auto& rank : ranks) {
    intervals = std::max(intervals, rank.size());
    if (rank.empty()) continue;
    grid.first = std::min(grid.first, static_cast<double>(rank.front().step - rank.front().steps));
    grid.last = std::max(grid.last, static_cast<double>(rank.back().step));
  }
  grid.columns =
      std::min({intervals, std::size_t{120}, std::max<std::size_t>(24, kMaxCells / grid.rows)});
  grid.late_ms.assign(grid.rows * grid.columns, std::nan(""));
  grid.fraction = grid.late_ms;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<std::array<double, 3>> sums(grid.columns);  // late, step, steps
    for (const auto& row : ranks[rank]) {
      const double middle = static_cast<double>(row.step) - static_cast<double>(row.steps) / 2;
      const double at = (middle - grid.first) / (grid.last - grid.first);
      const auto column =
          std::min(static_cast<std::size_t>(std::max(0.0, at) * static_cast<double>(grid.columns)),
                   grid.columns - 1);
      const auto steps = static_cast<double>(std::max<std::int64_t>(row.steps, 1));
      sums[column][0] += steps * row.late_ms;
      sums[column][1] += steps * row.step_ms;
      sums[column][2] += steps;
    }
    for (std::size_t column = 0; column < grid.columns; ++column) {
      if (sums[column][2] == 0) continue;
      const auto cell = rank / grid.ranks_per_row * grid.columns + column;
      const double late = std::max(0.0, sums[column][0] / sums[column][2]);
      if (!std::isnan(grid.late_ms[cell]) && late <= grid.late_ms[cell]) continue;
      grid.late_ms[cell] = late;
      grid.fraction[cell] =
          sums[column][1] > 0 ? std::max(0.0, sums[column][0] / sums[column][1]) : 0;
    }
  }
  return grid;
}

constexpr std::array kHeatLimits{0.01, 0.025, 0.05, 0.1, 0.2, 0.4};

int heat_level(double fraction) {
  return static_cast<int>(std::ranges::upper_bound(kHeatLimits, fraction) - kHeatLimits.begin());
}

std::string rank_name(const HeatGrid& grid, std::size_t row) {
  const auto first = row * grid.ranks_per_row;
  return grid.ranks_per_row == 1
             ? fmt::format("rank {}", first)
             : fmt::format("ranks {}–{}", first, first + grid.ranks_per_row - 1);
}

// Neighbouring cells of one color are one rectangle.
std::string heat_row(const HeatGrid& grid, std::size_t row) {
  std::string svg;
  const double width = 100.0 / static_cast<double>(grid.columns);
  for (std::size_t begin = 0; begin < grid.columns;) {
    const auto* fraction = &grid.fraction[row * grid.columns];
    const auto* late = &grid.late_ms[row * grid.columns];
    if (std::isnan(fraction[begin])) {
      ++begin;
      continue;
    }
    const int level = heat_level(fraction[begin]);
    std::size_t end = begin;
    double most = 0;
    while (end < grid.columns && !std::isnan(fraction[end]) && heat_level(fraction[end]) == level) {
      most = std::max(most, late[end++]);
    }
    const auto step_at = [&](std::size_t column) {
      return std::llround(grid.first + (grid.last - grid.first) * static_cast<double>(column) /
                                           static_cast<double>(grid.columns));
    };
    // The overlap hides the seams between neighbours.
    svg +=
        bar_part(static_cast<double>(begin) * width,
                 static_cast<double>(end - begin) * width + (end < grid.columns ? 0.05 : 0),
                 fmt::format("h{}", level),
                 fmt::format("{}, steps {} to {}: late by {} at most", rank_name(grid, row),
                             grouped(step_at(begin)), grouped(step_at(end)), milliseconds(most)));
    begin = end;
  }
  return svg;
}

std::string key(std::string_view css_class, std::string_view text) {
  return fmt::format(R"(<span class="key"><i class="box {}"></i>{}</span>)", css_class,
                     escaped(text));
}

}  // namespace

std::string split_html(const RunAnalysis& analysis) {
  if (analysis.ranks.empty() || analysis.step_ms <= 0) return {};
  auto ranks = analysis.ranks;
  std::string note = "Mean time per step. The parts of a bar sum to the step.";
  if (ranks.size() > kMaxBars) {
    std::ranges::sort(ranks, std::ranges::greater{}, &RankSummary::late_ms);
    ranks.resize(kMaxBars);
    note += fmt::format(" The {} ranks that the others wait for most, of {}.", kMaxBars,
                        analysis.ranks.size());
  }
  double longest = 0;
  for (const auto& rank : ranks) longest = std::max(longest, rank.step_ms);
  std::string legend;
  for (std::size_t part = 0; part < kNumStepParts; ++part) {
    if (analysis.split_ms[part] < 0.0005 * analysis.step_ms) continue;
    legend += fmt::format(R"(<span class="key"><i class="box p{}"></i>{} <b>{}</b></span>)", part,
                          kPartNames[part],
                          figure_text(analysis.split_ms[part] / analysis.step_ms, Unit::fraction));
  }
  std::string bars;
  for (const auto& rank : ranks) {
    bars += fmt::format(
        R"(<div class="row"><span class="label">rank {}</span><svg class="bar" height="22" width="100%">{}</svg><span class="much">{}</span></div>
)",
        rank.rank, split_bar(rank, longest), milliseconds(rank.step_ms));
  }
  return fmt::format(
      R"(<figure class="rows" id="split"><figcaption><h3>Where the time of a step goes</h3><p>{}</p><div class="legend">{}</div></figcaption>
{}</figure>
)",
      note, legend, bars);
}

std::string heat_map_html(std::span<const std::vector<RankInterval>> ranks) {
  if (ranks.size() < 2 ||
      std::ranges::all_of(ranks, [](const auto& rank) { return rank.empty(); })) {
    return {};
  }
  const auto grid = grid_of(ranks);
  const int height = grid.rows <= 8 ? 22 : grid.rows <= 32 ? 14 : 7;
  const auto every = grid.rows <= 16 ? 1U : grid.rows <= 64 ? 8U : 16U;
  std::string rows;
  for (std::size_t row = 0; row < grid.rows; ++row) {
    rows += fmt::format(
        R"(<div class="row tight"><span class="label">{}</span><svg class="bar flat" height="{}" width="100%">{}</svg></div>
)",
        row % every == 0 ? rank_name(grid, row) : "", height, heat_row(grid, row));
  }
  std::string legend = key("h0", "< 1 %");
  for (std::size_t level = 1; level <= kHeatLimits.size(); ++level) {
    legend += key(fmt::format("h{}", level),
                  fmt::format("≥ {}", figure_text(kHeatLimits[level - 1], Unit::fraction)));
  }
  return fmt::format(
      R"(<figure class="rows" id="late"><figcaption><h3>Which rank is late</h3><p>How long the other ranks waited for this rank in the last all-reduce of a step, as a fraction of the step.</p><div class="legend">{}</div></figcaption>
{}<div class="row scale"><span class="label"></span><span class="ends"><span>step {}</span><span>step {}</span></span></div></figure>
)",
      legend, rows, grouped(std::llround(grid.first)), grouped(std::llround(grid.last)));
}

std::string buckets_html(const RunAnalysis& analysis) {
  const auto& buckets = analysis.buckets.buckets;
  if (buckets.empty()) return {};
  double longest = 0;
  for (const auto& bucket : buckets) longest = std::max(longest, bucket.done_ms);
  if (longest <= 0) return {};
  const auto percent = [&](double value) { return 100 * std::max(0.0, value) / longest; };
  std::string rows;
  for (const auto& bucket : buckets) {
    const bool is_slow =
        std::ranges::find(analysis.buckets.slow, bucket.bucket) != analysis.buckets.slow.end();
    std::string bar;
    bar += bar_part(percent(bucket.ready_ms), percent(bucket.launched_ms - bucket.ready_ms), "b0",
                    fmt::format("bucket {}: ready, waits {} for its turn", bucket.bucket,
                                milliseconds(bucket.launched_ms - bucket.ready_ms)));
    bar +=
        bar_part(percent(bucket.launched_ms), percent(bucket.all_in_ms - bucket.launched_ms), "b1",
                 fmt::format("bucket {}: waits {} for other ranks", bucket.bucket,
                             milliseconds(bucket.all_in_ms - bucket.launched_ms)));
    bar +=
        bar_part(percent(bucket.all_in_ms),
                 std::max(0.25, percent(bucket.done_ms - bucket.all_in_ms)), is_slow ? "b3" : "b2",
                 fmt::format("bucket {}: {} reduced in {}, {}", bucket.bucket,
                             figure_text(bucket.bytes, Unit::bytes),
                             milliseconds(bucket.done_ms - bucket.all_in_ms),
                             figure_text(1e9 * bucket.gb_per_s, Unit::bytes_rate)));
    rows += fmt::format(
        R"(<div class="row"><span class="label">{}</span><svg class="bar" height="{}" width="100%">{}</svg><span class="much">{}</span></div>
)",
        figure_text(bucket.bytes, Unit::bytes), buckets.size() <= 12 ? 18 : 10, bar,
        figure_text(1e9 * bucket.gb_per_s, Unit::bytes_rate));
  }
  auto note = fmt::format(
      "One backward pass, {} in {} all-reduce{}, mean {}. Backward hides {} of the communication",
      figure_text(analysis.buckets.total_bytes, Unit::bytes), buckets.size(),
      buckets.size() == 1 ? "" : "s",
      figure_text(1e9 * analysis.buckets.mean_gb_per_s, Unit::bytes_rate),
      figure_text(analysis.buckets.overlap, Unit::fraction));
  note += analysis.buckets.possible_overlap > analysis.buckets.overlap + 0.02
              ? fmt::format("; {} is possible with buckets of {}.",
                            figure_text(analysis.buckets.possible_overlap, Unit::fraction),
                            figure_text(analysis.buckets.best_bucket_bytes, Unit::bytes))
              : ".";
  const auto slow =
      analysis.buckets.slow.empty() ? "" : key("b3", "slow: below half of the mean bandwidth");
  return fmt::format(
      R"(<figure class="rows" id="buckets"><figcaption><h3>Gradient buckets</h3><p>{}</p><div class="legend">{}{}{}{}</div></figcaption>
{}<div class="row scale"><span class="label"></span><span class="ends"><span>begin of backward</span><span>{}</span></span><span class="much"></span></div></figure>
)",
      escaped(note), key("b0", "ready, not yet started"), key("b1", "waits for other ranks"),
      key("b2", "is reduced"), slow, rows, milliseconds(longest));
}

}  // namespace lockstep
