#include "lockstep/report/run_metrics.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "lockstep/metrics/metrics_log.h"
#include "lockstep/metrics/rank_rows.h"

namespace lockstep {
namespace {

class RunMetricsTest : public ::testing::Test {
 protected:
  RunMetricsTest() {
    std::string name = (std::filesystem::temp_directory_path() / "run_metrics_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ + "/metrics.jsonl";
  }
  ~RunMetricsTest() override { std::filesystem::remove_all(folder_); }

  void append(const std::string& text) const { std::ofstream(path_, std::ios::app) << text; }

  std::string folder_;
  std::string path_;
};

std::string rank_row(int step, int rank, double late) {
  return "{\"kind\":\"rank\",\"step\":" + std::to_string(step) +
         ",\"time\":" + std::to_string(step) + ",\"rank\":" + std::to_string(rank) +
         ",\"host\":0,\"steps\":1,\"step_ms\":10,\"max_ms\":" + std::to_string(10 + step) +
         ",\"data_wait_ms\":4,\"late_ms\":" + std::to_string(late) + "}\n";
}

TEST_F(RunMetricsTest, ARowOfAGpuHasItsClocksAndPowerIfTheCardTellsThem) {
  RankInterval interval{.step = 1, .rank = 0, .steps = 1};
  interval.gpu = {.utilization = 0.5, .memory_bytes = 2e9, .clock_mhz = 1980};
  auto telling = interval;
  telling.rank = 1;
  telling.gpu->memory_clock_mhz = 3201;
  telling.gpu->power_watts = 650.5;
  {
    MetricsLog log(folder_, {.csv = false, .tensorboard = false});
    log.write(to_row(interval));
    log.write(to_row(telling));
  }
  MetricsReader reader(path_);
  EXPECT_TRUE(reader.read_more());
  EXPECT_EQ(reader.metrics().ranks.at(0).at(0).gpu, interval.gpu);
  EXPECT_EQ(reader.metrics().ranks.at(1).at(0).gpu, telling.gpu);
}

// The independent oracle is read_metrics(), which uses a JSON library.
TEST_F(RunMetricsTest, ColumnsHaveTheRowsOfReadMetricsAfterARestart) {
  {
    MetricsLog log(folder_, {.csv = false, .tensorboard = false});
    for (int step = 1; step <= 20; ++step) {
      log.write({step, MetricKind::train, {{"loss", 5.0 - step}, {"lr", 1e-3 * step}}});
      if (step % 5 == 0)
        log.write({step, MetricKind::eval, {{"loss", 4.0}, {"sample", "a \"b\"\n"}}});
    }
  }
  MetricsLog log(folder_, {.after = 12, .csv = false, .tensorboard = false});
  log.write({13, MetricKind::train, {{"extra", std::int64_t{3}}, {"loss", std::nan("")}}});
  MetricsReader reader(path_);
  EXPECT_TRUE(reader.read_more());
  const auto& metrics = reader.metrics();
  const auto rows = read_metrics(path_);
  std::size_t train = 0;
  for (const auto& row : rows) {
    if (row.kind != MetricKind::train) continue;
    EXPECT_EQ(metrics.train.step[train], static_cast<double>(row.step));
    for (const auto& metric : row.metrics) {
      const auto* column = metrics.train.find(metric.name);
      ASSERT_NE(column, nullptr) << metric.name;
      const double expected = std::holds_alternative<double>(metric.value)
                                  ? std::get<double>(metric.value)
                                  : static_cast<double>(std::get<std::int64_t>(metric.value));
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan((*column)[train]));
      } else {
        EXPECT_EQ((*column)[train], expected);
      }
    }
    ++train;
  }
  EXPECT_EQ(metrics.train.step.size(), train);
  EXPECT_EQ(metrics.train.find("extra")->size(), train);
  EXPECT_TRUE(std::isnan(metrics.train.find("extra")->front()));
  ASSERT_EQ(metrics.samples.size(), 2U);
  EXPECT_EQ(metrics.samples[1].text, "a \"b\"\n");
  EXPECT_EQ(metrics.sessions.size(), 2U);
  EXPECT_EQ(metrics.last_step(), 13);
  EXPECT_EQ(metrics.num_invalid, 0);
}

TEST_F(RunMetricsTest, APieceGivesTheSameAsTheWholeAndATornLineWaitsForItsEnd) {
  MetricsReader pieces(path_);
  EXPECT_FALSE(pieces.read_more());  // no file yet
  append("{\"kind\":\"start\",\"time\":1,\"after\":null}\n{\"kind\":\"train\",\"step\":1,\"ti");
  EXPECT_TRUE(pieces.read_more());
  EXPECT_TRUE(pieces.metrics().train.step.empty());
  append("me\":2,\"loss\":7}\n");
  EXPECT_TRUE(pieces.read_more());
  EXPECT_FALSE(pieces.read_more());
  MetricsReader whole(path_);
  EXPECT_TRUE(whole.read_more());
  EXPECT_EQ(pieces.metrics().train.step, whole.metrics().train.step);
  EXPECT_EQ(*pieces.metrics().train.find("loss"), (std::vector<double>{7}));
}

TEST_F(RunMetricsTest, LinesThatAreNoRowsAreCountedAndSkipped) {
  append("garbage\n{\"kind\":\"train\",\"step\":1,\"loss\":2}\n{\"kind\":\"moon\"}\n{}\n");
  MetricsReader reader(path_);
  EXPECT_TRUE(reader.read_more());
  EXPECT_EQ(reader.metrics().train.step.size(), 1U);
  EXPECT_EQ(reader.metrics().num_invalid, 3);
}

TEST_F(RunMetricsTest, ManyIntervalsAreMergedWithoutLosingSumsOrMaxima) {
  std::string text;
  constexpr int kSteps = 20'000;
  double late = 0;
  for (int step = 1; step <= kSteps; ++step) {
    text += rank_row(step, 1, step % 7);
    late += step % 7;
  }
  append(text);
  MetricsReader reader(path_);
  EXPECT_TRUE(reader.read_more());
  ASSERT_EQ(reader.metrics().ranks.size(), 2U);
  EXPECT_TRUE(reader.metrics().ranks[0].empty());
  const auto& rank = reader.metrics().ranks[1];
  EXPECT_LT(rank.size(), 4097U);
  EXPECT_GT(rank.size(), 1000U);
  double sum = 0;
  double steps = 0;
  double longest = 0;
  for (const auto& row : rank) {
    sum += row.late_ms * static_cast<double>(row.steps);
    steps += static_cast<double>(row.steps);
    longest = std::max(longest, row.max_ms);
    EXPECT_DOUBLE_EQ(row.part_ms(StepPart::data_wait), 4);
  }
  EXPECT_EQ(steps, kSteps);
  EXPECT_NEAR(sum, late, 1e-6 * late);
  EXPECT_EQ(longest, 10 + kSteps);
}

TEST_F(RunMetricsTest, OnlyTheNewestBucketsCountAndEventsSurviveARestart) {
  append(
      "{\"kind\":\"bucket\",\"step\":10,\"time\":1,\"bucket\":0,\"bytes\":5,\"gb_per_s\":1}\n"
      "{\"kind\":\"bucket\",\"step\":20,\"time\":2,\"bucket\":0,\"bytes\":6,\"gb_per_s\":2}\n"
      "{\"kind\":\"bucket\",\"step\":20,\"time\":2,\"bucket\":1,\"bytes\":7,\"gb_per_s\":3}\n"
      "{\"kind\":\"event\",\"step\":20,\"time\":2,\"event\":\"save\",\"seconds\":0.5,\"path\":"
      "\"p\"}\n"
      "{\"kind\":\"start\",\"time\":9,\"after\":5}\n");
  MetricsReader reader(path_);
  EXPECT_TRUE(reader.read_more());
  ASSERT_EQ(reader.metrics().buckets.size(), 2U);
  EXPECT_EQ(reader.metrics().buckets[1].gb_per_s, 3);
  ASSERT_EQ(reader.metrics().events.size(), 1U);
  EXPECT_EQ(reader.metrics().events[0].numbers.at("seconds"), 0.5);
  EXPECT_EQ(reader.metrics().events[0].texts.at("path"), "p");
}

}  // namespace
}  // namespace lockstep
