#include "lockstep/report/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace lockstep {
namespace {

MetricColumns curve(int rows, const std::function<double(int)>& value) {
  MetricColumns columns{.names = {"loss"}, .values = {{}}};
  for (int row = 0; row < rows; ++row) {
    columns.step.push_back(10.0 * (row + 1));
    columns.time.push_back(row);
    columns.values[0].push_back(value(row));
  }
  return columns;
}

double smooth(int row) { return 2 + 3 * std::exp(-row / 100.0); }

TEST(Comparison, CurvesWithTheSameMeanDoNotPart) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 0.05);
    const auto noisy = [&](int row) { return smooth(row) + noise(random); };
    const auto first = curve(500, noisy);
    const auto second = curve(500, noisy);
    const auto parting = find_parting(first, second, "loss");
    EXPECT_FALSE(parting.first_step) << "seed " << seed << ": step " << *parting.first_step;
    // The deviation of a difference of two independent values: 0.05 √2, within 30 %.
    EXPECT_NEAR(parting.noise, 0.0707, 0.021);
  }
}

TEST(Comparison, TheStepAtWhichCurvesPartIsFoundThroughTheirNoise) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 0.05);
    const auto first = curve(500, [&](int row) { return smooth(row) + noise(random); });
    // One tenth of a unit per 10 rows from row 200 on: out of the noise within 20 rows.
    const auto second = curve(500, [&](int row) {
      return smooth(row) + noise(random) + (row >= 200 ? 0.01 * (row - 200) : 0);
    });
    const auto parting = find_parting(first, second, "loss");
    ASSERT_TRUE(parting.first_step) << seed;
    EXPECT_GE(*parting.first_step, 1950) << seed;
    EXPECT_LE(*parting.first_step, 2250) << seed;
    EXPECT_NEAR(parting.last_difference, 3, 0.2);
  }
}

TEST(Comparison, BitIdenticalCurvesAreEqualAndTheFirstDifferentRowIsExact) {
  const auto first = curve(200, smooth);
  EXPECT_TRUE(find_parting(first, first, "loss").identical);
  EXPECT_EQ(in_words(find_parting(first, first, "loss")), "are equal in all 200 common rows");
  const auto second = curve(200, [](int row) { return smooth(row) + (row >= 120 ? 1e-6 : 0); });
  EXPECT_EQ(find_parting(first, second, "loss").first_step, 1210);
}

TEST(Comparison, OnlyCommonStepsAreCompared) {
  auto first = curve(100, smooth);
  auto second = curve(100, smooth);
  for (auto& step : second.step) step += 5;
  EXPECT_EQ(find_parting(first, second, "loss").num_common, 0);
  EXPECT_EQ(in_words(find_parting(first, second, "loss")), "have no step in common");
  second.step[3] = first.step[4];
  EXPECT_EQ(find_parting(first, second, "loss").num_common, 1);
  EXPECT_EQ(find_parting(first, second, "none").num_common, 0);
}

RunRecord run_on(int world, double exposed, double data) {
  RunRecord run{.folder = "runs/w" + std::to_string(world),
                .name = "w" + std::to_string(world),
                .world = world};
  run.settings = {{"lr", world == 2 ? "0.1" : "0.2", "default"},
                  {"seed", "1", "default"},
                  {"run", "x" + std::to_string(world), "--run"}};
  run.metrics.train = {
      .step = {10, 20},
      .time = {1, 2},
      .names = {"samples_per_second", "step_ms", "loss"},
      .values = {{1000.0 * world, 1000.0 * world * 100 / (100 + exposed)}, {100, 100}, {3, 2}}};
  for (int rank = 0; rank < world; ++rank) {
    run.metrics.ranks.emplace_back();
    for (int step : {10, 20}) {
      RankInterval row{.step = step, .rank = rank, .steps = 10, .step_ms = 98 + exposed + data};
      row.split_ms = {data, 30, 60, exposed, 5, 1, 1, 1};
      run.metrics.ranks.back().push_back(row);
    }
  }
  return run;
}

TEST(Comparison, NamesWhatGrowsWithTheNumberOfRanks) {
  const std::vector<RunRecord> slower{run_on(4, 25, 1), run_on(2, 2, 1)};
  const auto answer = scaling_answer(slower);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->small, 1U);
  EXPECT_NEAR(answer->communication_ms[1] - answer->communication_ms[0], 23, 1e-9);
  EXPECT_NE(answer->text.find("The largest growth is that of communication."), std::string::npos)
      << answer->text;
  const std::vector<RunRecord> data{run_on(2, 2, 1), run_on(4, 2, 31)};
  EXPECT_NE(scaling_answer(data)->text.find("The largest growth is that of data wait."),
            std::string::npos);
  const std::vector<RunRecord> equal{run_on(2, 2, 1), run_on(4, 2, 1)};
  EXPECT_NE(scaling_answer(equal)->text.find("Nothing grows notably."), std::string::npos);
  const std::vector<RunRecord> same{run_on(2, 2, 1), run_on(2, 3, 1)};
  EXPECT_FALSE(scaling_answer(same));
}

TEST(Comparison, ListsTheSettingsThatDifferAndNoOthers) {
  const std::vector<RunRecord> runs{run_on(2, 2, 1), run_on(4, 2, 1)};
  const auto differences = setting_differences(runs);
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0].name, "ranks");
  EXPECT_EQ(differences[1].name, "lr");
  EXPECT_EQ(differences[1].values, (std::vector<std::string>{"0.1", "0.2"}));
  const auto page = comparison_page(runs, {.now = 1});
  EXPECT_NE(page.find("<th>lr</th><td>0.1</td><td>0.2</td>"), std::string::npos);
  EXPECT_NE(comparison_text(runs).find("lr               0.1              0.2"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
