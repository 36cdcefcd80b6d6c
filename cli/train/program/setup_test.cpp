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

TEST(ExpectCapturable, NamesTheOptionThatAGraphCannotContain) {
  const auto refusal = [](const std::vector<Given>& given, const CaptureFacts& facts) {
    try {
      expect_capturable(resolve(ModelKind::resnet, given).config, facts);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const CaptureFacts two{.is_on_cpu = false, .num_ranks = 2, .backend = "nccl"};
  EXPECT_EQ(refusal({}, two), "");
  auto ipc = two;
  ipc.backend = "ipc";
  EXPECT_NE(refusal({}, ipc).find("backend ipc"), std::string::npos);
  auto sharded = two;
  sharded.shard = Shard::optimizer;
  EXPECT_NE(refusal({}, sharded).find("--shard"), std::string::npos);
  const std::vector<Given> synced{{"sync-batch-norm", "true", ""}};
  EXPECT_NE(refusal(synced, two).find("--sync-batch-norm"), std::string::npos);
  auto alone = sharded;  // it makes no calls
  alone.num_ranks = 1;
  EXPECT_EQ(refusal(synced, alone), "");
  EXPECT_NE(refusal({}, CaptureFacts()).find("--device cuda"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli
