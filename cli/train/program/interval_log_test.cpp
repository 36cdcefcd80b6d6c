#include "cli/train/program/interval_log.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::cli {
namespace {

using std::chrono_literals::operator""s;

const WorkPerStep kWork{
    .units = 1000, .operations_per_unit = 2e6, .peak_operations = 8e9, .steps = 20};
const StepState kState{.step = 12, .lr = 0.5, .gradient_norm = 3, .epoch = 1};

// Four steps of half a second on the slowest rank.
Interval four_steps() {
  Interval interval{.steps = 4};
  interval.loss.add(2.5);
  interval.data_wait.add(0.25);
  interval.worst_data_wait.add(0.75);
  interval.exposed.add(0.125);
  interval.seconds.add(2);
  return interval;
}

// Two steps of one second, and two seconds of evaluation.
Meter two_steps() {
  Meter meter;
  for (int i = 0; i < 2; ++i) {
    meter.add({.whole = 1s, .data_wait = Seconds(0.5), .exposed = Seconds(0.25)}, Mean{});
  }
  meter.add_evaluation(2s);
  return meter;
}

std::map<std::string, MetricValue> values_of(const MetricRow& row) {
  std::map<std::string, MetricValue> values;
  for (const auto& metric : row.metrics) values[metric.name] = metric.value;
  return values;
}

TEST(IntervalLog, ARowHasTheSpeedOfTheSlowestRankAlsoRelativeToThePeak) {
  const auto row = interval_row(kWork, four_steps(), kState);
  EXPECT_EQ(row.step, 12);
  EXPECT_EQ(row.kind, MetricKind::train);
  const auto values = values_of(row);
  EXPECT_EQ(values.at("tokens_per_second"), MetricValue(2000.0));
  EXPECT_EQ(values.at("step_ms"), MetricValue(500.0));
  EXPECT_EQ(values.at("gflops"), MetricValue(4.0));
  EXPECT_EQ(values.at("mfu"), MetricValue(0.5));
  EXPECT_EQ(values.at("data_wait_worst"), MetricValue(0.75));
  EXPECT_EQ(values.at("epoch"), MetricValue(std::int64_t{1}));
  EXPECT_FALSE(values.contains("loss_scale"));
}

TEST(IntervalLog, ARowHasNoUnknownFigures) {
  auto work = kWork;
  work.unit = "img";
  work.operations_per_unit = 0;
  auto state = kState;
  state.loss_scale = 1024;
  const auto values = values_of(interval_row(work, four_steps(), state));
  EXPECT_EQ(values.at("samples_per_second"), MetricValue(2000.0));
  EXPECT_FALSE(values.contains("tokens_per_second"));
  EXPECT_FALSE(values.contains("gflops"));
  EXPECT_FALSE(values.contains("mfu"));
  EXPECT_EQ(values.at("loss_scale"), MetricValue(1024.0));
}

TEST(IntervalLog, TheTimeLeftIncludesEvaluationsAndSaves) {
  // 4 s for 2 steps, 8 steps left.
  EXPECT_EQ(live_progress(kWork, two_steps(), kState, 2).left, 16s);
  auto timed = kWork;
  timed.steps.reset();
  auto state = kState;
  state.seconds_left = 7.4;
  EXPECT_EQ(live_progress(timed, two_steps(), state, 2).left, 7s);
}

TEST(IntervalLog, LiveProgressIsOfThisRankAndIntervalProgressOfAllRanks) {
  const auto live = live_progress(kWork, two_steps(), kState, 2);
  EXPECT_EQ(live.loss, 2);
  EXPECT_EQ(live.units_per_second, 1000);
  EXPECT_EQ(live.data_wait, 0.5);
  EXPECT_EQ(live.exposed, 0.25);
  const auto all = interval_progress(kWork, two_steps(), kState, four_steps());
  EXPECT_EQ(all.loss, 2.5);
  EXPECT_EQ(all.units_per_second, 2000);
  EXPECT_EQ(all.data_wait, 0.25);
  EXPECT_EQ(all.exposed, 0.125);
  EXPECT_EQ(all.left, live.left);
}

}  // namespace
}  // namespace lockstep::cli
