// Which calls a Reducer makes, when, and with which flags and records.
#include "lockstep/ddp/reducer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ddp/test_scripted_reduction_internal.h"

namespace lockstep {
namespace {

TEST_F(Reduction, StartsCompleteBucketsInOrderAndTheLastWhenTheBackwardHasEnded) {
  give(all, 3);
  begin();
  EXPECT_TRUE(reducer->is_begun());
  reducer->ready(3);
  reducer->ready(1);
  EXPECT_EQ(script.calls.size(), 0U) << "bucket 0 is first, and bucket 1 is not complete";
  reducer->ready(0);
  EXPECT_EQ(script.calls.size(), 1U);
  reducer->ready(2);
  EXPECT_EQ(script.calls.size(), 2U) << "bucket 2 is complete, but it is the last";
  reducer->start_rest();
  EXPECT_EQ(names(),
            (std::vector<std::string>{"gradients 0 of backward 7", "gradients 1", "gradients 2"}));
  EXPECT_TRUE(reducer->is_begun()) << "it has not been waited on";
  reducer->finish();
  EXPECT_FALSE(reducer->is_begun());
}

TEST_F(Reduction, GivesEachCallItsGradientsTheWeightAndTheFlags) {
  give(all, 3);
  const CallFlags flags{.sum = 5, .equal = 99};
  reduce(flags);
  ASSERT_EQ(script.calls.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& call = script.calls[i];
    EXPECT_EQ(call.flags, flags) << i;
    EXPECT_EQ(call.weight, 5) << i;
    EXPECT_TRUE(call.waited) << i;
    EXPECT_TRUE(torch::equal(call.input, torch::full({i == 1 ? 4 : 2}, 3.0))) << i;
  }
}

TEST_F(Reduction, SkipsBucketsOfFrozenParameters) {
  give({1, 2}, 3);
  weight(0).set_requires_grad(false);
  weight(3).set_requires_grad(false);
  begin();
  reducer->ready(1);
  reducer->ready(2);
  EXPECT_TRUE(script.calls.empty()) << "bucket 1 is the last one that takes part";
  reducer->start_rest();
  reducer->finish();
  EXPECT_EQ(names(), (std::vector<std::string>{"gradients 1 of backward 7"}));
  EXPECT_TRUE(script.maps.empty()) << "a frozen parameter is not unused";
  EXPECT_FALSE(weight(0).grad().defined());
  EXPECT_EQ(reducer->record().buckets[0].done, StepClock::time_point{});
  EXPECT_NE(reducer->record().buckets[1].done, StepClock::time_point{});
}

TEST_F(Reduction, DoesNotWaitForAFrozenParameterOfABucketThatTrains) {
  give({0, 1, 3}, 3);
  weight(2).set_requires_grad(false);
  begin();
  reducer->ready(0);
  reducer->ready(2);  // frozen after the graph was built
  reducer->ready(1);
  EXPECT_EQ(script.calls.size(), 2U);
  reducer->ready(2);
  EXPECT_EQ(reducer->record().hooks, 2) << "the frozen one is not counted";
  reducer->start_rest();
  reducer->finish();
  EXPECT_FALSE(weight(2).grad().defined());
}

TEST_F(Reduction, RefusesASecondGradientInOneBackward) {
  give(all, 3);
  begin();
  reducer->ready(2);
  try {
    reducer->ready(2);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("parameter weight 2 got a second gradient", 0), 0U);
  }
}

TEST_F(Reduction, AFailedBackwardMakesAllCallsAndReportsTheFailure) {
  give({0, 1}, 3);
  begin();
  reducer->ready(0);
  reducer->start_rest_as_failed();
  EXPECT_TRUE(reducer->has_failed());
  EXPECT_EQ(names(),
            (std::vector<std::string>{"gradients 0 of backward 7", "gradients 1", "gradients 2"}));
  EXPECT_FALSE(has(script.calls[0].flags, StepFlags::kFailed)) << "made before the failure";
  EXPECT_TRUE(has(script.calls[2].flags, StepFlags::kFailed));
  EXPECT_TRUE(has(reducer->finish(), StepFlags::kFailed));
  EXPECT_TRUE(script.maps.empty()) << "all ranks discard the step: no further call";
  EXPECT_FALSE(weight(3).grad().defined());
  EXPECT_NE(slots->state(0), GradientState::fresh);
  EXPECT_EQ(reducer->number(), 7);
  give(all, 3);
  begin();
  EXPECT_FALSE(reducer->has_failed()) << "of the last reduction only";
}

TEST_F(Reduction, AFailureSkipsBucketsOfFrozenParameters) {
  weight(1).set_requires_grad(false);
  weight(2).set_requires_grad(false);
  begin();
  reducer->start_rest_as_failed();
  EXPECT_EQ(names(), (std::vector<std::string>{"gradients 0 of backward 7", "gradients 2"}));
}

TEST_F(Reduction, DoesNotReportAFailureAfterTheLastCall) {
  give(all, 3);
  begin();
  reducer->start_rest();
  reducer->start_rest_as_failed();
  EXPECT_FALSE(reducer->has_failed());
  EXPECT_EQ(script.calls.size(), 3U);
  EXPECT_FALSE(has(reducer->finish(), StepFlags::kFailed));
}

TEST_F(Reduction, AnotherRanksFailureLeavesNoAverages) {
  give({0, 1, 2}, 3);
  script.other.any = StepFlags::kFailed;
  script.used_elsewhere = {3};
  EXPECT_TRUE(has(reduce(), StepFlags::kFailed));
  EXPECT_FALSE(weight(3).grad().defined());
  EXPECT_TRUE(script.maps.empty());
}

TEST_F(Reduction, AdvancesTheCallThatWasMadeLast) {
  reducer->advance();
  give(all, 3);
  begin();
  reducer->advance();
  reducer->ready(0);
  const int before = script.calls.at(0).advanced;
  EXPECT_EQ(before, 1) << "as it is started";
  reducer->advance();
  EXPECT_EQ(script.calls[0].advanced, 2);
  reducer->ready(1);
  EXPECT_EQ(script.calls[0].advanced, 3) << "once per gradient";
  reducer->ready(2);
  reducer->advance();
  EXPECT_EQ(script.calls[0].advanced, 3);
  EXPECT_EQ(script.calls[1].advanced, 2);
  reducer->start_rest();
  reducer->finish();
  const int at_end = script.calls[2].advanced;
  reducer->advance();
  EXPECT_EQ(script.calls[2].advanced, at_end);
}

TEST_F(Reduction, AddsAdviceToErrorsAboutRanksThatMakeOtherCalls) {
  const auto text_of = [](const auto& action) {
    try {
      action();
    } catch (const PeerError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const std::string left = "rank 1 has left group world";
  const std::string advised = left + ". Every rank must run the same number of backwards";
  const auto advises = [&](const std::string& text) { return text.rfind(advised, 0) == 0; };
  script.start_error = left;
  give(all, 3);
  EXPECT_TRUE(advises(text_of([&] { reduce(); })));
  script.start_error = "rank 1 died";
  EXPECT_EQ(text_of([&] { reduce(); }), "rank 1 died");
  script.start_error = "";
  script.advance_error = left;
  begin();
  EXPECT_TRUE(advises(text_of([&] { reducer->ready(0); })));
  script.advance_error = "";
  script.wait_error = left;
  begin();
  reducer->start_rest();
  EXPECT_TRUE(advises(text_of([&] { reducer->finish(); })));
  EXPECT_FALSE(reducer->is_begun()) << "there is nothing left to wait for";
}

// As a hook that throws after its last call does.
TEST_F(Reduction, IsDiscardedIfItFailsAtItsEnd) {
  give(all, 3);
  script.end_bits = StepFlags::kFailed;
  EXPECT_TRUE(has(reduce(), StepFlags::kFailed));
  for (const int i : all) EXPECT_EQ(slots->state(i), GradientState::stale);
  script.end_bits = StepFlags::kNonFinite;
  script.calls.clear();
  give(all, 3);
  EXPECT_TRUE(has(reduce(), StepFlags::kNonFinite));
  EXPECT_TRUE(gradient_is(3, kAverage + 2));
}

TEST_F(Reduction, BeginsAgainAfterOneThatFailed) {
  give(all, 3);
  script.wait_error = "rank 1 died";
  EXPECT_THROW(reduce(), PeerError);
  script.advance_error = "the call is over";
  EXPECT_NO_THROW(reducer->advance());
  script.advance_error = "";
  script.wait_error = "";
  script.calls.clear();
  reduce();
  EXPECT_EQ(names(),
            (std::vector<std::string>{"gradients 0 of backward 7", "gradients 1", "gradients 2"}));
}

TEST_F(Reduction, RecordsTheOrderOfEvents) {
  give({0, 2, 3}, 3);
  begin();
  for (const int i : {3, 0, 2}) reducer->ready(i);
  reducer->start_rest();
  reducer->finish();
  EXPECT_EQ(std::vector(reducer->arrival().begin(), reducer->arrival().end()),
            (std::vector{3, 0, 2}));
  const auto& record = reducer->record();
  EXPECT_EQ(record.hooks, 3);
  ASSERT_EQ(record.buckets.size(), 3U);
  EXPECT_EQ(record.buckets[0].hooks_before, 2);
  EXPECT_EQ(record.buckets[1].hooks_before, 3);
  EXPECT_EQ(record.buckets[0].bytes, 8);
  EXPECT_EQ(record.buckets[1].bytes, 16);
  for (const auto& bucket : record.buckets) {
    EXPECT_NE(bucket.ready, StepClock::time_point{})
        << "start_rest() makes the remaining ones ready";
    EXPECT_LE(bucket.ready, bucket.launched);
    EXPECT_LE(bucket.launched, bucket.done);
  }
  EXPECT_LT(record.buckets[2].ready, record.buckets[1].ready);
  EXPECT_GT(record.exposed.count(), 0);
  begin();
  EXPECT_TRUE(reducer->arrival().empty());
  EXPECT_EQ(reducer->record().hooks, 0);
}

TEST_F(Reduction, RecordsTheTrafficOfAHook) {
  give(all, 3);
  reduce();
  EXPECT_EQ(reducer->record().buckets[1].wire_bytes, 16) << "as it is, without a hook";
  EXPECT_EQ(reducer->record().buckets[1].encode.count(), 0);
  script.calls.clear();
  script.cost = {.wire_bytes = 5,
                 .encode = std::chrono::nanoseconds(6),
                 .decode = std::chrono::nanoseconds(7)};
  weight(0).set_requires_grad(false);
  give({1, 2, 3}, 3);
  reduce();
  const auto& buckets = reducer->record().buckets;
  EXPECT_EQ(buckets[0].wire_bytes, 8) << "it was not reduced";
  for (const auto i : {1, 2}) {
    const auto& bucket = buckets[static_cast<std::size_t>(i)];
    EXPECT_EQ(bucket.wire_bytes, 5);
    EXPECT_EQ(bucket.encode.count(), 6);
    EXPECT_EQ(bucket.decode.count(), 7);
    EXPECT_EQ(bucket.bytes, i == 1 ? 16 : 8);
  }
}

TEST_F(Reduction, RecordsWhenAllRanksHadEntered) {
  const auto bucket = [&]() -> const BucketRecord& { return reducer->record().buckets[0]; };
  give(all, 3);
  reduce();
  EXPECT_EQ(bucket().all_entered, bucket().launched) << "not measured";
  script.calls.clear();
  script.times = {.all_entered = 1, .done = 0};  // long ago
  give(all, 3);
  reduce();
  EXPECT_EQ(bucket().all_entered, bucket().launched) << "not before this rank";
  script.calls.clear();
  give(all, 3);
  begin();
  reducer->start_rest();
  script.times = {.all_entered = ticks(), .done = ticks()};
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto looked = StepClock::now();
  reducer->finish();
  EXPECT_GT(bucket().all_entered, bucket().launched);
  EXPECT_LE(bucket().all_entered, bucket().done);
  EXPECT_LT(bucket().done, looked);
}

TEST_F(Reduction, ForgetsAReductionAndItsGradients) {
  give({0}, 3);
  begin();
  reducer->ready(0);
  reducer->forget();
  EXPECT_FALSE(reducer->is_begun());
  EXPECT_EQ(slots->state(0), GradientState::stale);
  script.calls.clear();
  give(all, 3);
  reduce();
  EXPECT_EQ(script.calls.size(), 3U) << "no call of the first is left";
}

}  // namespace
}  // namespace lockstep
