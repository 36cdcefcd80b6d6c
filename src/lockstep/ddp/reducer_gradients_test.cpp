// What each parameter contributes to a reduction, and what its gradient is afterwards.
#include "lockstep/ddp/reducer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "lockstep/ddp/test_scripted_reduction_internal.h"

namespace lockstep {
namespace {

TEST_F(Reduction, LeavesAveragesThatAreStaleInTheSlots) {
  give(all, 3);
  script.other = {.sum = 4, .equal = 8};
  const auto result = reduce({.sum = 2, .equal = 9});
  EXPECT_EQ(result.sum, 6);
  EXPECT_FALSE(result.all_equal);
  for (const int i : all) EXPECT_EQ(slots->state(i), GradientState::stale) << i;
  EXPECT_TRUE(gradient_is(0, kAverage));
  EXPECT_TRUE(gradient_is(1, kAverage + 1));
  EXPECT_TRUE(gradient_is(2, kAverage + 1));
  EXPECT_TRUE(gradient_is(3, kAverage + 2));
  EXPECT_TRUE(script.maps.empty()) << "every parameter is used: no further call";
}

TEST_F(Reduction, ReportsAnUnusedParameterInTheLastCall) {
  give({0, 2, 3}, 3);
  reduce();
  EXPECT_EQ(bits(), (std::vector<std::uint32_t>{0, 0, StepFlags::kUnused}));
  ASSERT_EQ(script.maps.size(), 1U);
  EXPECT_EQ(script.maps[0], (std::vector{true, false, true, true}));
}

TEST_F(Reduction, AnUnusedParameterContributesZerosAndHasNoGradientAfterwards) {
  give({0, 2, 3}, 3);
  reduce();
  EXPECT_TRUE(torch::equal(script.calls[1].input, torch::tensor({0.0, 0.0, 3.0, 3.0})));
  EXPECT_FALSE(weight(1).grad().defined());
  EXPECT_TRUE(gradient_is(2, kAverage + 1));
}

TEST_F(Reduction, AParameterThatOnlyAnotherRankUsedGetsTheAverage) {
  give({0, 2, 3}, 3);
  script.used_elsewhere = {1};
  reduce();
  EXPECT_TRUE(gradient_is(1, kAverage + 1));
  EXPECT_EQ(slots->state(1), GradientState::stale);
}

TEST_F(Reduction, AnotherRankMayHaveTheUnusedParameter) {
  give(all, 3);
  script.other.any = StepFlags::kUnused;
  reduce();
  EXPECT_EQ(bits(), (std::vector<std::uint32_t>{0, 0, 0})) << "not this rank";
  ASSERT_EQ(script.maps.size(), 1U);
  EXPECT_TRUE(gradient_is(3, kAverage + 2));
}

TEST_F(Reduction, AFrozenParameterGetsNoGradientAlthoughAnotherRankHadOne) {
  give({0, 1, 3}, 3);
  weight(2).set_requires_grad(false);
  script.other.any = StepFlags::kUnused;
  script.used_elsewhere = {2};
  reduce();
  EXPECT_FALSE(weight(2).grad().defined());
  EXPECT_TRUE(gradient_is(1, kAverage + 1));
}

TEST_F(Reduction, AStaleGradientContributesAndStaysWhereNoRankUsedIt) {
  give(all, 3);
  reduce();
  script.calls.clear();
  give({0, 2, 3}, 5);
  reduce();
  EXPECT_TRUE(torch::equal(script.calls[1].input, torch::tensor({101.0, 101.0, 106.0, 106.0})));
  EXPECT_TRUE(gradient_is(1, kAverage + 1)) << "unchanged";
  EXPECT_EQ(slots->state(1), GradientState::stale);
}

TEST_F(Reduction, AStaleGradientBecomesTheAverageWhereAnotherRankUsedIt) {
  give(all, 3);
  reduce();
  weight(1).mutable_grad().fill_(4);
  script.calls.clear();
  give({0, 2, 3}, 5);
  script.used_elsewhere = {1};
  reduce();
  EXPECT_TRUE(gradient_is(1, kAverage + 1));
}

TEST_F(Reduction, ARankWithoutSamplesContributesZerosAlsoForStaleGradients) {
  give(all, 3);
  reduce();
  script.calls.clear();
  script.other = {.sum = 1, .any = StepFlags::kUnused};
  script.used_elsewhere = {0};
  reduce({.absent = true});
  for (const auto& call : script.calls) {
    EXPECT_TRUE(torch::equal(call.input, torch::zeros_like(call.input)));
    EXPECT_EQ(call.flags.any, 0U) << "a rank that is absent has no unused parameters";
    EXPECT_EQ(call.weight, 0);
  }
  EXPECT_TRUE(gradient_is(0, kAverage));
  EXPECT_TRUE(gradient_is(3, kAverage + 2)) << "used on no rank: unchanged";
}

TEST_F(Reduction, DoesNotChangeGradientsWhenAllRanksAreAbsent) {
  give({0}, 3);
  reducer->forget();
  script.other = {.absent = true};
  const auto result = reduce({.absent = true});
  EXPECT_EQ(result.num_absent, 2);
  EXPECT_TRUE(script.maps.empty());
  EXPECT_TRUE(gradient_is(0, 3));
  EXPECT_FALSE(weight(1).grad().defined());
}

TEST_F(Reduction, TakesAGradientThatTheUserAssigned) {
  give({0, 2, 3}, 3);
  weight(1).mutable_grad() = torch::full({kLength}, 9.0);
  reduce();
  EXPECT_TRUE(torch::equal(script.calls[1].input, torch::tensor({9.0, 9.0, 3.0, 3.0})));
  EXPECT_TRUE(script.maps.empty());
}

TEST_F(Reduction, DoesNotTakeAGradientThatTheUserReset) {
  give(all, 3);
  weight(3).mutable_grad() = at::Tensor();
  reduce();
  EXPECT_TRUE(torch::equal(script.calls[2].input, torch::zeros({kLength})));
  ASSERT_EQ(script.maps.size(), 1U);
  EXPECT_EQ(script.maps[0], (std::vector{true, true, true, false}));
  EXPECT_FALSE(weight(3).grad().defined());
}

TEST_F(Reduction, RemembersAContributionThatTheUserResetsMeanwhile) {
  give({0, 1, 2}, 3);
  begin();
  reducer->start_rest();
  weight(0).mutable_grad() = at::Tensor();
  reducer->finish();
  EXPECT_EQ(script.maps.at(0), (std::vector{true, true, true, false}));
  EXPECT_TRUE(gradient_is(0, kAverage));
}

TEST_F(Reduction, ReportsANonFiniteGradientInTheLastCall) {
  give(all, 3);
  give({1}, kInfinity);
  begin();
  for (const int i : all) reducer->ready(i);
  reducer->start_rest();
  EXPECT_TRUE(has(reducer->finish(), StepFlags::kNonFinite));
  EXPECT_EQ(bits(), (std::vector<std::uint32_t>{0, 0, StepFlags::kNonFinite}));
  EXPECT_EQ(std::vector(reducer->non_finite().begin(), reducer->non_finite().end()),
            std::vector{1});
  for (const int i : all) weight(i).mutable_grad() = at::Tensor();
  give(all, 3);
  reduce();
  EXPECT_TRUE(reducer->non_finite().empty());
}

TEST_F(Reduction, DoesNotReportAnOldNonFiniteGradient) {
  give(all, 3);
  give({1}, kInfinity);
  weight(1).mutable_grad() = at::Tensor();
  script.used_elsewhere = {1};
  EXPECT_FALSE(has(reduce(), StepFlags::kNonFinite)) << "the user reset it";
  EXPECT_TRUE(reducer->non_finite().empty());
}

TEST_F(Reduction, CountsANonFiniteGradientThatArrivedBeforeItsParameterWasFrozen) {
  give({0, 1, 2}, 3);
  give({3}, kInfinity);
  weight(3).set_requires_grad(false);
  EXPECT_TRUE(has(reduce(), StepFlags::kNonFinite));
}

TEST_F(Reduction, OfOneBufferDoesNotChangeTheOther) {
  give({0, 1, 2}, 3);
  slots->use_buffer(1);
  give(all, 5);
  second->begin({.sum = 1}, 8);
  second->start_rest();
  second->finish();
  EXPECT_TRUE(torch::equal(script.calls[0].input, torch::full({kLength}, 5.0)));
  EXPECT_EQ(slots->state(0), GradientState::stale);
  EXPECT_EQ(slots->state(0, 0), GradientState::fresh);
  slots->use_buffer(0);
  EXPECT_TRUE(gradient_is(0, 3));
  EXPECT_FALSE(weight(3).grad().defined());
}

}  // namespace
}  // namespace lockstep
