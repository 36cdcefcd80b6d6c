#include "lockstep/report/page.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

RunRecord example(RunOutcome outcome) {
  RunRecord run{
      .folder = "runs/gpt", .name = "gpt", .outcome = outcome, .model = "gpt", .world = 2};
  run.settings = {{"steps", "600", "--steps"}, {"lr", "0.002", "default"}};
  auto& metrics = run.metrics;
  metrics.sessions = {{1000, 1100}};
  metrics.train.names = {"loss", "tokens_per_second", "step_ms"};
  metrics.train.values.resize(3);
  for (int step = 10; step <= 300; step += 10) {
    metrics.train.step.push_back(step);
    metrics.train.time.push_back(1000 + step / 3.0);
    metrics.train.values[0].push_back(5 - step / 100.0);
    metrics.train.values[1].push_back(15000);
    metrics.train.values[2].push_back(100);
  }
  metrics.eval = {
      .step = {100, 200}, .time = {1033, 1066}, .names = {"loss"}, .values = {{4.25, 3.125}}};
  metrics.samples = {{200, "To <be> or"}};
  metrics.last_time = 1100;
  for (int rank = 0; rank < 2; ++rank) {
    metrics.ranks.emplace_back();
    for (int step = 10; step <= 300; step += 10) {
      RankInterval row{.step = step,
                       .rank = rank,
                       .steps = 10,
                       .step_ms = 100,
                       .p50_ms = 99,
                       .late_ms = 5.0 * rank};
      row.split_ms = {1, 30, 60, 2, 5, 1, 0.5, 0.5};
      row.peak_rss_bytes = 1 << 30;
      metrics.ranks.back().push_back(row);
    }
  }
  return run;
}

bool has(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

TEST(Page, StatesOutcomeAndFigures) {
  const auto page = run_page(example(RunOutcome::finished), {.now = 1200, .version = "1"});
  EXPECT_TRUE(has(page, ">Finished</span>"));
  EXPECT_TRUE(has(page, "300 steps in 1 min 40 s on 2 ranks."));
  EXPECT_TRUE(has(page, "Validation loss went from 4.2500 to 3.1250; the last value is the best."));
  EXPECT_TRUE(has(page, "<span class=\"value\">15k</span>"));
  EXPECT_TRUE(has(page, "<span class=\"value\">95 %</span>"));  // forward, backward, optimizer
  EXPECT_TRUE(has(page, "To &lt;be&gt; or"));
  EXPECT_FALSE(has(page, "refresh"));
}

TEST(Page, OfRanksOnGpusShowsTheirPowerIfTheCardsTellIt) {
  auto run = example(RunOutcome::finished);
  EXPECT_FALSE(has(run_page(run, {}), "GPU memory"));
  for (auto& rank : run.metrics.ranks) {
    for (auto& row : rank) row.gpu = {.utilization = 0.5, .memory_bytes = 1e9};
  }
  EXPECT_TRUE(has(run_page(run, {}), "GPU memory"));
  EXPECT_FALSE(has(run_page(run, {}), "GPU power"));
  for (auto& row : run.metrics.ranks.front()) row.gpu->power_watts = 650.5;
  EXPECT_TRUE(has(run_page(run, {}), "GPU power"));
}

TEST(Page, OfAnActiveRunReloadsItselfAndShowsItsProgress) {
  const auto page = run_page(example(RunOutcome::running), {.now = 1200, .reload_after = 7});
  EXPECT_TRUE(has(page, "<meta http-equiv=\"refresh\" content=\"7\">"));
  EXPECT_TRUE(has(page, "data-reload=\"7\""));
  EXPECT_TRUE(has(page, "Step 300 of 600, about 1 min 40 s left."));
  EXPECT_TRUE(has(page, "aria-valuenow=\"50\""));
}

TEST(Page, OfAKilledRunSaysSo) {
  auto run = example(RunOutcome::killed);
  run.launches.resize(1);
  const auto page = run_page(run, {.now = 1200, .reload_after = 7});
  EXPECT_TRUE(has(page, ">Killed</span>"));
  EXPECT_TRUE(has(page, "Killed after step 300"));
  EXPECT_FALSE(has(page, "http-equiv=\"refresh\""));
}

TEST(Page, OfAFailedRunMarksTheMissingCall) {
  auto run = example(RunOutcome::failed);
  LaunchRecord launch;
  launch.end = EndRecord{.cause = "rank_failed"};
  launch.end->culprit =
      RankEnd{.rank = 1, .host = "h", .how = "SIGKILL", .failed = true, .last_lines = {"<oops>"}};
  launch.end->ranks = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
  launch.flights = {{.rank = 0,
                     .group = "world",
                     .calls = {{5, "all_reduce(sum)", true, 9, 1}, {6, "barrier", false, 8, 0}}},
                    {.rank = 2, .group = "world", .calls = {{5, "all_reduce(sum)", true, 9, 1}}}};
  run.launches = {launch};
  const auto page = run_page(run, {.now = 1200});
  EXPECT_TRUE(has(page, "rank 1 on h ended with SIGKILL"));
  EXPECT_TRUE(has(page, "&lt;oops&gt;"));
  EXPECT_TRUE(has(page, "<td class=\"open\"><span>barrier</span>"));        // rank 0 waits
  EXPECT_TRUE(has(page, "<td class=\"gone\"><span>missing</span>"));        // rank 1 was killed
  EXPECT_TRUE(has(page, "<td class=\"missing\"><span>not called</span>"));  // rank 2 did not come
}

TEST(Page, OfARunWithoutAnyRowIsComplete) {
  RunRecord run{.folder = "r", .name = "r", .outcome = RunOutcome::killed};
  const auto page = run_page(run, {});
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  EXPECT_FALSE(has(page, "nan"));
}

TEST(Page, RefersToNoOtherFile) {
  const auto page = run_page(example(RunOutcome::finished), {});
  for (const auto* text : {"src=", "@import", "url(", "https://", "http://"}) {
    // The only address is the name of the SVG namespace, which is never opened.
    for (auto at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) {
      EXPECT_EQ(page.compare(at, 26, "http://www.w3.org/2000/svg"), 0) << page.substr(at, 60);
    }
  }
}

TEST(Page, OfAHundredThousandStepsAndEightRanksIsBelowThreeMegabytes) {
  auto run = example(RunOutcome::finished);
  auto& train = run.metrics.train;
  train = {.names = {"loss", "tokens_per_second", "step_ms", "lr", "gradient_norm", "data_wait",
                     "exposed_communication", "mfu"}};
  train.values.resize(8);
  for (int step = 1; step <= 100'000; ++step) {
    train.step.push_back(step);
    train.time.push_back(1000 + step);
    for (auto& column : train.values) column.push_back(1 + std::sin(step * 12.9898) / 3);
  }
  run.metrics.ranks.assign(8, {});
  for (int rank = 0; rank < 8; ++rank) {
    for (int step = 25; step <= 100'000; step += 25) {
      RankInterval row{.step = step,
                       .rank = rank,
                       .steps = 25,
                       .step_ms = 100 + std::sin(step),
                       .p50_ms = 99,
                       .late_ms = 20 * std::abs(std::sin(step + rank))};
      row.split_ms = {1, 30, 60, 2, 5, 1, 0.5, 0.5};
      row.rss_bytes = 1e9 + step;
      row.cpu_ms = 90;
      run.metrics.ranks[static_cast<std::size_t>(rank)].push_back(row);
    }
  }
  const auto page = run_page(run, {.now = 1200});
  EXPECT_LT(page.size(), 3'000'000U);
  EXPECT_GT(page.size(), 300'000U);
}

}  // namespace
}  // namespace lockstep
