#include "cli/train/program/evaluation.h"

#include <gtest/gtest.h>

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

EvalResult result_of(double loss) {
  EvalResult result;
  result.loss.add(loss);
  return result;
}

TEST(Best, IsTheLowestFiniteLossAndCountsTheEvaluationsSince) {
  Best best;
  EXPECT_FALSE(best.add(std::numeric_limits<double>::quiet_NaN(), 1));
  EXPECT_TRUE(best.add(3, 2));
  EXPECT_FALSE(best.add(3, 3));  // an equal loss is not a new best
  EXPECT_FALSE(best.add(4, 4));
  EXPECT_EQ(best.since(), 2);
  EXPECT_TRUE(best.add(2, 5));
  EXPECT_EQ(best.loss(), 2);
  EXPECT_EQ(best.step(), 5);
  EXPECT_EQ(best.since(), 0);
}

TEST(Best, IsSavedAndLoaded) {
  Best before;
  before.add(2.5, 7);
  before.add(3, 8);
  Best after;
  after.load_state_json(before.state_json());
  EXPECT_EQ(after.loss(), 2.5);
  EXPECT_EQ(after.step(), 7);
  EXPECT_EQ(after.since(), 1);
  EXPECT_THROW(after.load_state_json("{\"loss\":1}"), UsageError);
}

TEST(EvaluationLine, StatesWhetherItIsTheBestAndThePatienceUsed) {
  Best best;
  best.add(2.5, 40);
  EXPECT_EQ(evaluation_line(40, result_of(2.5), best, 0),
            "step 40: validation loss 2.5000, best so far");
  best.add(2.75, 50);
  EXPECT_EQ(evaluation_line(50, result_of(2.75), best, 3),
            "step 50: validation loss 2.7500 (1 of 3)");
}

TEST(EvaluationLine, HasTheAccuracyForClasses) {
  auto result = result_of(2.5);
  result.accuracy.correct = 3;
  result.accuracy.count = 4;
  EXPECT_EQ(evaluation_line(1, result, {}, 0), "step 1: validation loss 2.5000, accuracy 75.00 %");
  const auto row = evaluation_row(1, result);
  EXPECT_EQ(row.kind, MetricKind::eval);
  EXPECT_EQ(row.metrics, (std::vector<Metric>{{"loss", 2.5}, {"accuracy", 0.75}}));
  EXPECT_EQ(evaluation_row(1, result_of(2.5)).metrics, (std::vector<Metric>{{"loss", 2.5}}));
}

}  // namespace
}  // namespace lockstep::cli
