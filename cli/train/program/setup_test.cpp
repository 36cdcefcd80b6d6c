#include "cli/train/program/setup.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

SavedConfig saved_with(const std::vector<Given>& given, int world) {
  return {.resolved = resolve(ModelKind::gpt, given), .world = world};
}

TEST(BatchSizesFor, AnotherNumberOfRanksKeepsTheGlobalBatch) {
  const auto saved = saved_with({{"batch", "8", ""}}, 4);
  EXPECT_EQ(batch_sizes_for(saved, 4), (BatchSizes{8, 1, 4}));
  for (const int world : {1, 2, 8}) {
    EXPECT_EQ(batch_sizes_for(saved, world).global(), 32) << world;
    EXPECT_EQ(batch_sizes_for(saved, world).world, world);
  }
  EXPECT_THROW((void)batch_sizes_for(saved, 3), UsageError);
}

TEST(BatchSizesFor, AGlobalBatchDeterminesTheNumberOfMicroBatches) {
  const auto saved = saved_with({{"batch", "4", ""}, {"global-batch", "64", ""}}, 2);
  EXPECT_EQ(batch_sizes_for(saved, 2), (BatchSizes{4, 8, 2}));
}

TEST(StepCounts, EveryLengthBecomesSteps) {
  const auto resolved =
      resolve(ModelKind::gpt,
              {{"epochs", "2", ""}, {"warmup", "100ktok", ""}, {"eval-every", "0.5ep", ""}});
  const auto counts = step_counts(resolved, {.steps_per_epoch = 50, .tokens = 10'000});
  EXPECT_EQ(counts.total, 100);
  EXPECT_EQ(counts.warmup, 10);
  EXPECT_EQ(counts.eval_every, 25);
  const auto timed = resolve(ModelKind::gpt, {{"time", "10min", ""}});
  EXPECT_EQ(step_counts(timed, {}).total, std::nullopt);
}

TEST(ScheduleFor, RisesToThePeakLrAndEndsAtTheMinimum) {
  const auto resolved =
      resolve(ModelKind::gpt, {{"steps", "100", ""}, {"warmup", "10st", ""}, {"lr", "0.5", ""}});
  const auto counts = step_counts(resolved, {.steps_per_epoch = 1, .tokens = 1});
  const auto schedule = schedule_for(resolved.config, counts, 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.05);
  EXPECT_DOUBLE_EQ(schedule.at(9), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.05);
  EXPECT_LT(schedule.at(60), schedule.at(50));
}

TEST(ScheduleFor, AWarmUpThatIsNotShorterThanTheRunIsRefused) {
  const auto resolved = resolve(ModelKind::gpt, {{"steps", "10", ""}, {"warmup", "10st", ""}});
  EXPECT_THROW((void)schedule_for(resolved.config, step_counts(resolved, {}), 1), UsageError);
}

TEST(ScheduleFor, TheDefaultWarmUpFitsAShortRun) {
  const auto resolved = resolve(ModelKind::gpt, {{"steps", "10", ""}});
  EXPECT_EQ(step_counts(resolved, {}).warmup, 1);
}

TEST(PeakLrFor, ScalesWithTheGlobalBatchOnRequest) {
  const auto plain = resolve(ModelKind::gpt, {{"lr", "0.1", ""}}).config;
  EXPECT_DOUBLE_EQ(peak_lr_for(plain, 256).value, 0.1);
  const auto scaled =
      resolve(ModelKind::gpt,
              {{"lr", "0.1", ""}, {"base-batch-size", "64", ""}, {"lr-scaling", "square-root", ""}})
          .config;
  EXPECT_DOUBLE_EQ(peak_lr_for(scaled, 256).value, 0.2);
}

}  // namespace
}  // namespace lockstep::cli
