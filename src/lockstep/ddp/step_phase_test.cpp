#include "lockstep/ddp/step_phase.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr auto kPhases = {Phase::idle, Phase::accumulating, Phase::reducing, Phase::started,
                          Phase::overlapping};

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

StepTally tally_of(int micro_batches, int batches, std::int64_t samples) {
  return {.micro_batches = micro_batches, .batches = batches, .samples = samples};
}

TEST(StepTally, CountsBatchesAndMicroBatchesWithoutOne) {
  StepTally tally;
  tally.count(5);
  EXPECT_TRUE(tally.is_counted);
  tally.add_batch();
  EXPECT_FALSE(tally.is_counted) << "count() applies to one backward";
  tally.count(3);
  tally.add_batch();
  tally.add_empty();
  EXPECT_EQ(tally.micro_batches, 3);
  EXPECT_EQ(tally.batches, 2);
  EXPECT_EQ(tally.samples, 8);
  tally.count(1);
  tally.add_empty();
  EXPECT_FALSE(tally.is_counted);
}

TEST(StepTally, AssignedGradientsCountAsABatchIfThereIsNone) {
  StepTally tally;
  tally.add_assigned();
  tally.add_assigned();
  EXPECT_EQ(tally.batches, 1);
  EXPECT_EQ(tally.micro_batches, 0);
  tally.add_batch();
  tally.add_assigned();
  EXPECT_EQ(tally.batches, 2);
}

TEST(StepTally, WeighsByRankByBatchesOrBySamples) {
  const auto weights = [](const StepTally& tally) {
    return std::vector{weight_of(tally, {}), weight_of(tally, {.accumulate = 2}),
                       weight_of(tally, {.by_count = true}),
                       weight_of(tally, {.by_count = true, .accumulate = 2})};
  };
  EXPECT_EQ(weights(tally_of(0, 0, 0)), (std::vector<std::int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(weights(tally_of(1, 1, 7)), (std::vector<std::int64_t>{1, 1, 7, 7}));
  // Backwards under no_sync(): the user divides the loss, so the rank weighs 1.
  EXPECT_EQ(weights(tally_of(4, 3, 20)), (std::vector<std::int64_t>{1, 3, 20, 20}));
}

TEST(StepTally, TheLastMicroBatchOfAStepReduces) {
  const auto next = [](int micro_batches, int accumulate, int scopes) {
    return next_micro_batch(tally_of(micro_batches, 0, 0), {.accumulate = accumulate}, scopes);
  };
  EXPECT_EQ(next(0, 1, 0), Phase::reducing);
  EXPECT_EQ(next(0, 1, 1), Phase::accumulating);
  EXPECT_EQ(next(0, 1, 2), Phase::accumulating) << "scopes nest";
  EXPECT_EQ(next(0, 3, 0), Phase::accumulating);
  EXPECT_EQ(next(1, 3, 0), Phase::accumulating);
  EXPECT_EQ(next(2, 3, 0), Phase::reducing);
  EXPECT_EQ(next(2, 3, 1), Phase::accumulating);
  EXPECT_EQ(next(5, 3, 0), Phase::reducing) << "scopes have delayed the reduction";
}

TEST(GradientBuffers, Alternate) {
  GradientBuffers buffers{1, 0};
  EXPECT_TRUE(buffers.are_apart());
  buffers.reduce_filled();
  EXPECT_EQ(buffers.reducing, 1);
  EXPECT_FALSE(buffers.are_apart());
  buffers.fill_next(2);
  EXPECT_EQ(buffers.filling, 0);
  EXPECT_EQ(buffers.reducing, 1);
  buffers.fill_next(3);
  EXPECT_EQ(buffers.filling, 1);
  buffers.fill_next(2);
  buffers.fill_reduced();
  EXPECT_EQ(buffers.filling, 1);
  EXPECT_EQ(buffers.reducing, 1);
}

TEST(StepPhase, ABackwardFromIdleHasThePhaseOfItsMicroBatch) {
  for (const GradientBuffers buffers : {GradientBuffers{0, 0}, GradientBuffers{1, 0}}) {
    EXPECT_EQ(enter_backward(Phase::idle, Phase::accumulating, buffers), Phase::accumulating);
    EXPECT_EQ(enter_backward(Phase::idle, Phase::reducing, buffers), Phase::reducing);
  }
}

TEST(StepPhase, ABackwardDuringAReductionNeedsAnotherBufferAndNoSync) {
  const GradientBuffers one{0, 0};
  const GradientBuffers two{1, 0};
  EXPECT_EQ(enter_backward(Phase::started, Phase::accumulating, two), Phase::overlapping);
  const auto text = [](Phase micro_batch, const GradientBuffers& buffers) {
    return refusal([&] { (void)enter_backward(Phase::started, micro_batch, buffers); });
  };
  const std::string first = "backward() was called between start() and wait() of a reduction";
  for (const auto micro_batch : {Phase::accumulating, Phase::reducing}) {
    EXPECT_EQ(text(micro_batch, one),
              first +
                  ": call wait() first, or set DdpOptions{.gradient_buffers = 2} to run a backward "
                  "meanwhile");
  }
  EXPECT_EQ(text(Phase::reducing, two),
            first + " and would begin a second one: run it under no_sync()");
}

TEST(StepPhase, ABackwardReturnsToThePhaseItBeganIn) {
  EXPECT_EQ(leave_backward(Phase::accumulating), Phase::idle);
  EXPECT_EQ(leave_backward(Phase::reducing), Phase::idle);
  EXPECT_EQ(leave_backward(Phase::overlapping), Phase::started);
}

TEST(StepPhase, KnowsWhetherABackwardRuns) {
  std::vector<bool> runs;
  for (const auto phase : kPhases) runs.push_back(runs_backward(phase));
  EXPECT_EQ(runs, (std::vector{false, true, true, false, true}));
}

TEST(StepPhase, WaitNeedsAStartedReduction) {
  EXPECT_FALSE(has_to_wait(Phase::idle)) << "a second wait() has nothing to do";
  EXPECT_FALSE(has_to_wait(Phase::accumulating));
  EXPECT_TRUE(has_to_wait(Phase::started));
  for (const auto phase : {Phase::reducing, Phase::overlapping}) {
    EXPECT_EQ(refusal([&] { (void)has_to_wait(phase); }),
              "wait() of a reduction was called during a backward: call it after the backward");
  }
}

TEST(StepPhase, OtherFunctionsNeedIdle) {
  for (const auto phase : kPhases) {
    const auto text = refusal([&] { expect_idle(phase, "adopt()"); });
    if (phase == Phase::idle) {
      EXPECT_EQ(text, "");
    } else {
      EXPECT_EQ(text,
                "adopt() was called during a backward or a reduction: call it "
                "between steps");
    }
  }
}

TEST(StepPhase, SamplesAreCountedWhenTheNextBackwardFillsTheOtherBuffer) {
  const auto countable = [](const GradientBuffers& buffers) {
    std::vector<bool> may;
    for (const auto phase : kPhases) {
      const auto text = refusal([&] { expect_countable(phase, buffers); });
      may.push_back(text.empty());
      EXPECT_EQ(text.substr(0, 8), text.empty() ? "" : "count() ");
    }
    return may;
  };
  EXPECT_EQ(countable({0, 0}), (std::vector{true, false, false, false, false}));
  EXPECT_EQ(countable({1, 0}), (std::vector{true, false, false, true, false}));
}

}  // namespace
}  // namespace lockstep
