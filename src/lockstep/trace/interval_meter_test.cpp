#include "lockstep/trace/interval_meter.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

StepSplit split_of(std::chrono::nanoseconds forward, std::chrono::nanoseconds exposed) {
  StepSplit split;
  split[StepPart::forward] = forward;
  split[StepPart::exposed] = exposed;
  return split;
}

TEST(IntervalMeter, GivesMeansPercentilesAndDifferencesOfUsage) {
  IntervalMeter meter(ProcessUsage{.cpu_seconds = 10,
                                   .run_queue_seconds = 1,
                                   .voluntary_switches = 100,
                                   .steal_seconds = 1,
                                   .processor_seconds = 100,
                                   .throttled_seconds = 3});
  for (int i = 1; i <= 20; ++i) meter.add(split_of(i * 1ms, 1ms), {.reducing = 4ms});
  EXPECT_EQ(meter.steps(), 20);
  const auto result = meter.read_and_reset(ProcessUsage{.rss_bytes = 5,
                                                        .peak_rss_bytes = 6,
                                                        .cpu_seconds = 10.2,
                                                        .run_queue_seconds = 1.02,
                                                        .voluntary_switches = 140,
                                                        .involuntary_switches = 20,
                                                        .steal_seconds = 1.5,
                                                        .processor_seconds = 102,
                                                        .throttled_seconds = 3.1});
  EXPECT_EQ(result.steps, 20);
  EXPECT_DOUBLE_EQ(result.part_ms(StepPart::forward), 10.5);
  EXPECT_DOUBLE_EQ(result.part_ms(StepPart::exposed), 1);
  EXPECT_DOUBLE_EQ(result.step_ms, 11.5);
  EXPECT_DOUBLE_EQ(result.p50_ms, 11);  // the tenth of 20
  EXPECT_DOUBLE_EQ(result.p95_ms, 20);  // the nineteenth
  EXPECT_DOUBLE_EQ(result.max_ms, 21);
  EXPECT_DOUBLE_EQ(result.reduce_ms, 4);
  EXPECT_DOUBLE_EQ(result.overlap, 0.75);
  EXPECT_NEAR(result.cpu_ms, 10, 1e-9);
  EXPECT_NEAR(result.run_queue_ms, 1, 1e-9);
  EXPECT_EQ(result.voluntary_switches, 2);
  EXPECT_EQ(result.involuntary_switches, 1);
  EXPECT_NEAR(result.steal, 0.25, 1e-12);
  EXPECT_NEAR(result.throttled_ms, 5, 1e-9);
  EXPECT_EQ(result.rss_bytes, 5);
  EXPECT_EQ(result.peak_rss_bytes, 6);
  EXPECT_EQ(meter.steps(), 0) << "the next interval begins";
}

TEST(IntervalMeter, FiguresTravelAsNumbers) {
  RankInterval interval{.step = 70, .time = 1.5, .rank = 3, .host = 1, .steps = 10, .loss = 0.5};
  interval.split_ms = {1, 2, 3, 4, 5, 6, 7, 8};
  interval.throttled_ms = 9;
  interval.network_ms = 10;
  const std::vector<double> entries{1, 2, 3};
  const auto plain = interval_from_numbers(to_numbers(interval, entries));
  EXPECT_EQ(plain.interval, interval);
  EXPECT_EQ(plain.entries, entries);
  interval.gpu = {.utilization = 0.5, .memory_bytes = 2, .clock_mhz = 3};
  const auto numbers = to_numbers(interval, entries);
  EXPECT_EQ(interval_from_numbers(numbers).interval, interval);
  interval.gpu->memory_clock_mhz = 4;
  interval.gpu->power_watts = 5;
  interval.gpu->host_syncs = 6;
  EXPECT_EQ(interval_from_numbers(to_numbers(interval, entries)).interval, interval);
  EXPECT_THROW((void)interval_from_numbers(std::span(numbers).first(20)), UsageError);
  // One call of gather_values carries 496 bytes per rank.
  EXPECT_LE((numbers.size() + 7) * sizeof(double), 496U);
}

TEST(IntervalMeter, KeepsTheEntriesOfTheLastSteps) {
  IntervalMeter meter{ProcessUsage{}};
  for (int i = 0; i < 100; ++i) {
    meter.add({}, {.entered = std::chrono::nanoseconds(i)});
  }
  ASSERT_EQ(meter.entries().size(), IntervalMeter::kMaxEntries);
  EXPECT_EQ(meter.entries().front(), 36);
  EXPECT_EQ(meter.entries().back(), 99);
}

TEST(IntervalMeter, TheRankThatEntersLastIsLate) {
  std::vector<GatheredInterval> ranks(4);
  ranks[0].entries = {1e6, 10e6};
  ranks[1].entries = {2e6, 10e6};
  ranks[2].entries = {3e6, 10e6};
  ranks[3].entries = {9e6, 10e6};  // in the second step all enter at the same moment
  compare_entries(ranks);
  EXPECT_DOUBLE_EQ(ranks[3].interval.late_ms, (9 - 2) / 2.0);
  EXPECT_DOUBLE_EQ(ranks[3].interval.last, 0.5);
  EXPECT_DOUBLE_EQ(ranks[2].interval.late_ms, (3 - 2) / 2.0);
  EXPECT_DOUBLE_EQ(ranks[2].interval.last, 0);
  EXPECT_DOUBLE_EQ(ranks[0].interval.late_ms, 0);
  std::vector<GatheredInterval> alone(1);
  alone[0].entries = {5};
  compare_entries(alone);
  EXPECT_EQ(alone[0].interval.last, 0);
}

}  // namespace
}  // namespace lockstep
