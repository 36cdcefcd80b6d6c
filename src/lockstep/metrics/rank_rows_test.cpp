#include "lockstep/metrics/rank_rows.h"

#include <gtest/gtest.h>

#include "lockstep/metrics/test_folder_internal.h"

namespace lockstep {
namespace {

RankInterval some_interval(int rank, std::int64_t step) {
  RankInterval result{.step = step, .rank = rank, .host = 1, .steps = 10, .loss = 2.5};
  result.step_ms = 36;
  result.p50_ms = 35.5;
  result.p95_ms = 40.25;
  result.max_ms = 51.125;
  result.split_ms = {1, 2, 3, 4, 5, 6, 7, 8};
  result.late_ms = 0.5;
  result.last = 0.25;
  result.reduce_ms = 9;
  result.overlap = 0.75;
  result.launch_ms = 0.5;
  result.rss_bytes = 1e9;
  result.peak_rss_bytes = 2e9;
  result.cpu_ms = 33;
  result.network_ms = 7;
  result.run_queue_ms = 0.125;
  result.voluntary_switches = 3;
  result.involuntary_switches = 4;
  result.steal = 0.01;
  result.throttled_ms = 11;
  return result;
}

using RankRowsInAFile = FolderTest;

TEST_F(RankRowsInAFile, KeepEveryFigure) {
  auto on_gpu = some_interval(1, 10);
  on_gpu.slowest_peer = 3;
  on_gpu.slowest_peer_mb_per_s = 12.5;
  on_gpu.fastest_peer_mb_per_s = 900;
  on_gpu.gpu = {.utilization = 0.5,
                .memory_bytes = 3e9,
                .clock_mhz = 1500,
                .memory_clock_mhz = 3201,
                .power_watts = 650.5,
                .host_syncs = 2};
  const BucketFigures bucket{.bucket = 3,
                             .bytes = 1 << 20,
                             .ready_ms = 1,
                             .launched_ms = 2,
                             .done_ms = 4,
                             .all_in_ms = 3,
                             .gb_per_s = 1.0486,
                             .count = 3};
  MetricsLog log(folder_);
  log.write(to_row(some_interval(0, 10)));
  log.write(to_row(on_gpu));
  log.write(to_row(bucket, 10));
  const auto rows = read_metrics(log.path());
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_GT(rows[0].time, 1.7e9);  // after 2023
  auto read = rank_intervals(rows);
  ASSERT_EQ(read.size(), 2U);
  for (auto& each : read) each.time = 0;
  EXPECT_EQ(read[0], some_interval(0, 10));
  EXPECT_EQ(read[1], on_gpu);
  EXPECT_EQ(newest_buckets(rows), std::vector{bucket});
  EXPECT_FALSE(std::filesystem::exists(path("metrics.csv")))
      << "the tables have train and eval rows only";
}

TEST(RankRows, TheAnalysisUsesTheLastStartAndTheNewestBuckets) {
  std::vector<MetricRow> rows;
  const auto start = [](std::int64_t workers) {
    return MetricRow{.step = 0,
                     .kind = MetricKind::event,
                     .metrics = {{"event", "start"}, {"workers", workers}, {"backend", "shm"}}};
  };
  rows.push_back(start(1));
  rows.push_back(to_row(some_interval(0, 10)));
  rows.push_back(to_row(BucketFigures{.bucket = 0, .bytes = 8}, 10));
  rows.push_back(start(4));
  rows.push_back(to_row(some_interval(0, 20)));
  rows.push_back(to_row(BucketFigures{.bucket = 0, .bytes = 16}, 20));
  rows.push_back(
      {.step = 20,
       .kind = MetricKind::event,
       .metrics = {{"event", "save_failed"}, {"rank", std::int64_t{2}}, {"text", "full"}}});
  const auto input = analysis_input(rows);
  ASSERT_EQ(input.intervals.size(), 1U);
  EXPECT_EQ(input.intervals[0].step, 20);
  ASSERT_EQ(input.buckets.size(), 1U);
  EXPECT_EQ(input.buckets[0].bytes, 16);
  EXPECT_EQ(input.facts.workers, 4);
  ASSERT_EQ(input.facts.save_failures.size(), 1U);
  EXPECT_EQ(input.facts.save_failures[0].rank, 2);
  EXPECT_TRUE(analysis_input({}).intervals.empty());
}

}  // namespace
}  // namespace lockstep
