// The charts of a run over its steps.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>

#include "lockstep/report/page_parts_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kManyPoints = 1500;
constexpr std::size_t kFewPoints = 400;
constexpr std::size_t kMaxLines = 8;  // of ranks; more become the median and the extremes

const ChartAxis kSteps{.title = "step", .unit = Unit::count};

ChartSeries series_of(const MetricColumns& rows, std::string_view column, std::string name,
                      int color, std::size_t most = kManyPoints) {
  ChartSeries series{.name = std::move(name), .color = color};
  if (const auto* values = rows.find(column)) series.points = downsample(rows.step, *values, most);
  return series;
}

// The mean over a window of rows around each row.
std::vector<CurvePoint> smoothed(const std::vector<CurvePoint>& points) {
  const auto half = std::max<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(points.size()) / 60);
  auto result = points;
  for (auto& point : result) {
    const auto index = &point - result.data();
    // Symmetric at the begin, where curves are steep; at the end, the mean of the last rows.
    const auto before = std::min(half, index);
    const auto after = std::min(before, static_cast<std::ptrdiff_t>(points.size()) - 1 - index);
    double sum = 0;
    for (auto i = index - before; i <= index + after; ++i)
      sum += points[static_cast<std::size_t>(i)].mean;
    point.mean = point.low = point.high = sum / static_cast<double>(before + after + 1);
  }
  return result;
}

std::vector<ChartMark> restart_marks(const RunMetrics& metrics) {
  std::vector<ChartMark> marks;
  for (const auto& event : metrics.events) {
    const auto step = static_cast<double>(event.step);
    if (event.event == "restart") {
      marks.push_back({step, fmt::format("restarted after step {}", grouped(event.step)), "bad"});
    }
  }
  return marks;
}

Chart loss_chart(const RunRecord& run) {
  const auto& metrics = run.metrics;
  Chart chart{
      .id = "loss", .title = "Loss", .x = kSteps, .marks = restart_marks(metrics), .height = 340};
  auto train = series_of(metrics.train, "loss", "training", 1);
  constexpr std::size_t kNoisy = 100;
  if (train.points.size() >= kNoisy && metrics.train.step.size() <= kManyPoints) {
    ChartSeries mean{.name = "training, smoothed", .color = 1, .points = smoothed(train.points)};
    train.style = LineStyle::faint;
    chart.series = {std::move(train), std::move(mean)};
  } else {
    chart.series = {std::move(train)};
  }
  auto validation = series_of(metrics.eval, "loss", "validation", 2);
  validation.style = validation.points.size() <= 60 ? LineStyle::points : LineStyle::line;
  if (!validation.points.empty()) chart.series.push_back(std::move(validation));
  return chart;
}

Chart one_line(const RunRecord& run, std::string_view column, std::string id, std::string title,
               Unit unit, int color) {
  auto name = title;
  name.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(name.front())));
  return {.id = std::move(id),
          .title = std::move(title),
          .x = kSteps,
          .y = {.unit = unit},
          .series = {series_of(run.metrics.train, column, std::move(name), color, kFewPoints)},
          .height = 210};
}

double spread(const Chart& chart) {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  for (const auto& series : chart.series) {
    for (const auto& point : series.points) {
      if (!(point.low > 0)) continue;
      low = std::min(low, point.low);
      high = std::max(high, point.high);
    }
  }
  return high / low;
}

using RankValue = std::function<double(const RankInterval&)>;

ChartSeries rank_series(const std::vector<RankInterval>& rank, const RankValue& value,
                        std::string name, int color) {
  std::vector<double> x;
  std::vector<double> y;
  for (const auto& row : rank) {
    x.push_back(static_cast<double>(row.step));
    y.push_back(value(row));
  }
  return {.name = std::move(name), .color = color, .points = downsample(x, y, kFewPoints)};
}

// One line per rank, or, with many ranks, the median and the largest value of each interval.
std::vector<ChartSeries> by_rank(const RunMetrics& metrics, const RankValue& value) {
  std::vector<ChartSeries> lines;
  if (metrics.ranks.size() <= kMaxLines) {
    for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
      lines.push_back(rank_series(metrics.ranks[rank], value, fmt::format("rank {}", rank),
                                  static_cast<int>(rank % kMaxLines) + 1));
    }
    return lines;
  }
  std::map<std::int64_t, std::vector<double>> steps;
  for (const auto& rank : metrics.ranks) {
    for (const auto& row : rank) steps[row.step].push_back(value(row));
  }
  std::vector<double> x;
  std::vector<double> median;
  std::vector<double> most;
  for (auto& [step, values] : steps) {
    std::ranges::sort(values);
    x.push_back(static_cast<double>(step));
    median.push_back(values[values.size() / 2]);
    most.push_back(values.back());
  }
  lines.push_back({.name = "median rank", .color = 1, .points = downsample(x, median, kFewPoints)});
  lines.push_back({.name = "largest", .color = 2, .points = downsample(x, most, kFewPoints)});
  return lines;
}

bool any_above(const RunMetrics& metrics, const RankValue& value, double limit) {
  return std::ranges::any_of(metrics.ranks, [&](const auto& rank) {
    return std::ranges::any_of(rank, [&](const RankInterval& row) { return value(row) > limit; });
  });
}

Chart step_time_chart(const RunRecord& run) {
  Chart chart{.id = "step-time",
              .title = "Time per step",
              .x = kSteps,
              .y = {.unit = Unit::milliseconds, .from_zero = true}};
  const auto& metrics = run.metrics;
  if (metrics.ranks.empty()) {
    chart.note = "The slowest rank.";
    chart.series = {series_of(metrics.train, "step_ms", "mean", 1, kFewPoints)};
    return chart;
  }
  std::map<std::int64_t, std::pair<double, double>> worst;  // p50 and p95 of the slowest rank
  for (const auto& rank : metrics.ranks) {
    for (const auto& row : rank) {
      auto& [p50, p95] = worst[row.step];
      p50 = std::max(p50, row.p50_ms);
      p95 = std::max(p95, row.p95_ms);
    }
  }
  std::vector<double> x;
  std::vector<double> p50;
  std::vector<double> p95;
  for (const auto& [step, values] : worst) {
    x.push_back(static_cast<double>(step));
    p50.push_back(values.first);
    p95.push_back(values.second);
  }
  chart.note = "The slowest rank. Evaluations and saves are part of their step.";
  chart.series = {{.name = "p95",
                   .color = 5,
                   .style = LineStyle::faint,
                   .points = downsample(x, p95, kFewPoints)},
                  {.name = "p50", .color = 1, .points = downsample(x, p50, kFewPoints)}};
  return chart;
}

}  // namespace

std::vector<Chart> learning_charts(const RunRecord& run) {
  std::vector<Chart> charts{loss_chart(run)};
  if (run.metrics.eval.find("accuracy")) {
    Chart accuracy{.id = "accuracy",
                   .title = "Validation accuracy",
                   .x = kSteps,
                   .y = {.unit = Unit::fraction}};
    accuracy.series = {series_of(run.metrics.eval, "accuracy", "accuracy", 3)};
    accuracy.series[0].style = LineStyle::points;
    charts.push_back(std::move(accuracy));
  }
  // Version 0.1 called the learning rate `rate`.
  const auto lr = run.metrics.train.find("lr") ? "lr" : "rate";
  charts.push_back(one_line(run, lr, "lr", "Learning rate", Unit::plain, 4));
  charts.back().y.from_zero = true;
  charts.push_back(
      one_line(run, "gradient_norm", "gradient-norm", "Gradient norm", Unit::plain, 6));
  charts.back().note = "Before clipping.";
  charts.back().y.logarithmic = spread(charts.back()) > 30;
  if (run.metrics.train.find("loss_scale")) {
    charts.push_back(one_line(run, "loss_scale", "loss-scale", "Loss scale", Unit::count, 8));
    charts.back().y.logarithmic = true;
  }
  return charts;
}

std::vector<Chart> speed_charts(const RunRecord& run, const RunFigures& figures) {
  const auto& train = run.metrics.train;
  std::vector<Chart> charts;
  Chart speed{.id = "throughput",
              .title = "Throughput",
              .note = "All ranks together.",
              .x = kSteps,
              .y = {.unit = Unit::count_rate, .from_zero = true}};
  const auto column = figures.unit == "tokens" ? "tokens_per_second" : "samples_per_second";
  speed.series = {series_of(train, column, figures.unit + " per second", 3, kFewPoints)};
  charts.push_back(std::move(speed));
  charts.push_back(step_time_chart(run));
  Chart waits{.id = "waits",
              .title = "Time spent waiting",
              .note = "Fraction of a step, mean over ranks.",
              .x = kSteps,
              .y = {.unit = Unit::fraction, .from_zero = true}};
  waits.series = {series_of(train, "data_wait", "for data", 5, kFewPoints),
                  series_of(train, "exposed_communication", "for gradients", 2, kFewPoints)};
  // A quiet run fills no chart with noise: at least 5 %.
  double most = 0;
  for (const auto& series : waits.series) {
    for (const auto& point : series.points)
      most = std::max(most, std::isfinite(point.high) ? point.high : 0);
  }
  if (most < 0.05) waits.y.high = 0.05;
  charts.push_back(std::move(waits));
  if (train.find("mfu")) {
    charts.push_back(one_line(run, "mfu", "mfu", "Model FLOP utilization", Unit::fraction, 1));
    charts.back().note = "Speed of matrix products against the measured peak.";
    charts.back().y.from_zero = true;
    charts.back().height = 260;
  }
  return charts;
}

std::vector<Chart> machine_charts(const RunRecord& run) {
  const auto& metrics = run.metrics;
  std::vector<Chart> charts;
  const auto add = [&](std::string id, std::string title, std::string note, Unit unit,
                       const RankValue& value) {
    charts.push_back({.id = std::move(id),
                      .title = std::move(title),
                      .note = std::move(note),
                      .x = kSteps,
                      .y = {.unit = unit, .from_zero = true},
                      .series = by_rank(metrics, value)});
  };
  add("memory", "Memory", "Resident memory of each rank's process.", Unit::bytes,
      [](const RankInterval& row) { return row.rss_bytes; });
  add("cores", "Processor", "Cores in use by each rank's process.", Unit::plain,
      [](const RankInterval& row) {
        return row.step_ms > 0 ? std::round(100 * row.cpu_ms / row.step_ms) / 100 : 0;
      });
  const RankValue withheld = [](const RankInterval& row) {
    return row.step_ms > 0 ? row.steal + (row.throttled_ms + row.run_queue_ms) / row.step_ms : 0;
  };
  if (any_above(metrics, withheld, 0.01)) {
    add("withheld", "Processor time withheld",
        "Fraction of a step: waiting for a processor, throttled by the cgroup, stolen by the "
        "hypervisor.",
        Unit::fraction, withheld);
  }
  if (any_above(
          metrics, [](const RankInterval& row) { return row.gpu ? 1.0 : 0.0; }, 0.5)) {
    add("gpu-memory", "GPU memory", "In use on each rank's GPU.", Unit::bytes,
        [](const RankInterval& row) { return row.gpu ? row.gpu->memory_bytes : std::nan(""); });
    add("gpu-use", "GPU utilization", "Fraction of the time in which a kernel ran.", Unit::fraction,
        [](const RankInterval& row) { return row.gpu ? row.gpu->utilization : std::nan(""); });
  }
  const RankValue watts = [](const RankInterval& row) {
    return row.gpu ? row.gpu->power_watts.value_or(std::nan("")) : std::nan("");
  };
  if (any_above(metrics, watts, 0)) {
    add("gpu-power", "GPU power", "Watts that each rank's GPU draws.", Unit::plain, watts);
  }
  return charts;
}

}  // namespace lockstep
