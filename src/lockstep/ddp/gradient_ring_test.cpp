// Buckets that share memory: where they are, and when a Reducer waits for one.
#include "lockstep/ddp/gradient_ring.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/ddp/reducer.h"
#include "lockstep/ddp/test_scripted_reduction_internal.h"

namespace lockstep {
namespace {

using Lengths = std::vector<std::int64_t>;

TEST(Ring, HasRoomForTheLongestBucketAndTwoUsualOnes) {
  EXPECT_EQ(ring_length(Lengths{1, 10, 10, 50, 10, 10, 10}, 10), 70);
  EXPECT_EQ(ring_length(Lengths{1, 10, 10}, 10), 21) << "of all buckets, if that is less";
  EXPECT_EQ(ring_length(Lengths{}, 10), 0);
}

TEST(Ring, PlacesBucketsOneAfterTheOtherAndBeginsAgain) {
  EXPECT_EQ(ring_begins(Lengths{1, 10, 10, 12, 10, 30}, 32), (Lengths{0, 1, 11, 0, 12, 0}));
}

TEST(Ring, KeepsEveryBucketInside) {
  const Lengths buckets{3, 9, 27, 4, 9, 1, 9, 9, 20};
  const auto length = ring_length(buckets, 9);
  const auto begins = ring_begins(buckets, length);
  ASSERT_EQ(begins.size(), buckets.size());
  for (std::size_t i = 0; i < buckets.size(); ++i) EXPECT_LE(begins[i] + buckets[i], length) << i;
}

// The parameters of a bucket, and where it begins. `padding` elements follow the last parameter.
struct InRing {
  std::vector<int> parameters;
  std::int64_t begin = 0;
  std::int64_t padding = 0;
};

// Buckets {0}, {1, 2} and {3} of two elements per parameter: the third one shares memory with the
// first one. A test may use others.
class ReductionInARing : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<GradientSlots::Entry> entries;
    for (int i = 0; i < 4; ++i) {
      parameters.push_back(torch::zeros({kLength}, torch::requires_grad()));
      entries.push_back(
          {std::string("weight ").append(std::to_string(i)), parameters.back(), {{}}});
    }
    slots.emplace(std::move(entries));
    use({{.parameters = {0}}, {.parameters = {1, 2}, .begin = 2}, {.parameters = {3}}});
  }
  void use(const std::vector<InRing>& buckets, bool waits = true) {
    BucketPlan plan{.buckets = {}, .bucket_of = std::vector<int>(parameters.size())};
    ReducerOptions options{.sharded = true, .waits = waits};
    std::vector<at::Tensor> ranges;
    std::int64_t begin = 0;
    for (const auto& bucket : buckets) {
      RingBucket in_ring;
      auto end = bucket.begin;
      for (const int parameter : bucket.parameters) {
        plan.bucket_of[static_cast<std::size_t>(parameter)] = static_cast<int>(ranges.size());
        in_ring.parameters.push_back(memory.narrow(0, end, kLength));
        end += kLength;
      }
      if (bucket.padding > 0) in_ring.padding.push_back(memory.narrow(0, end, bucket.padding));
      const auto length = end + bucket.padding - bucket.begin;
      in_ring.range = memory.narrow(0, bucket.begin, length);
      ranges.push_back(in_ring.range);
      options.ring.push_back(std::move(in_ring));
      plan.buckets.push_back(
          {.begin = begin, .end = begin + length, .parameters = bucket.parameters});
      begin += length;
    }
    options.keep = [this](int bucket, const GroupFlags&) {
      kept.emplace_back(bucket, memory.clone());
    };
    reducer.emplace(*slots, 0, std::move(plan), std::move(ranges), script, RankPage(), options);
  }
  void give(const std::vector<int>& indices, double value) {
    for (const int i : indices) {
      (parameters[static_cast<std::size_t>(i)] * value).sum().backward();
    }
  }
  /// What was in the memory of a bucket when it was kept.
  [[nodiscard]] double kept_of(std::size_t which, std::int64_t element) const {
    return kept[which].second[element].item<double>();
  }

  at::Tensor memory = torch::full({11}, 55.0);
  std::vector<at::Tensor> parameters;
  std::optional<GradientSlots> slots;
  ScriptedReduction script;
  std::vector<std::pair<int, at::Tensor>> kept;
  std::optional<Reducer> reducer;
};

TEST_F(ReductionInARing, TakesGradientsOutOfTheirSlots) {
  give({0, 1, 2, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  for (const int i : {0, 1, 2, 3}) reducer->ready(i);
  EXPECT_EQ(script.calls.size(), 2);
  EXPECT_FALSE(parameters[1].grad().defined());
  EXPECT_TRUE(parameters[3].grad().defined()) << "its bucket starts after the backward";
  EXPECT_TRUE(torch::equal(script.calls[1].input, torch::full({4}, 3.0)));
  EXPECT_TRUE(reducer->contributes(1));
  EXPECT_FALSE(reducer->contributes(3));
}

TEST_F(ReductionInARing, MovesAGradientBeforeItsBucketIsFull) {
  give({0, 1, 2, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->ready(1);
  EXPECT_TRUE(script.calls.empty());
  EXPECT_FALSE(parameters[1].grad().defined());
  EXPECT_TRUE(parameters[2].grad().defined());
  EXPECT_TRUE(reducer->contributes(1));
  EXPECT_EQ(memory[2].item<double>(), 3);
  EXPECT_EQ(memory[4].item<double>(), 55) << "of parameter 2";
  reducer->ready(0);
  reducer->ready(2);
  ASSERT_EQ(script.calls.size(), 2);
  EXPECT_TRUE(torch::equal(script.calls[1].input, torch::full({4}, 3.0)));
}

TEST_F(ReductionInARing, MovesNoGradientBeforeTheBucketsThatComeFirstInItsMemory) {
  give({0, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->ready(3);
  EXPECT_TRUE(parameters[3].grad().defined()) << "the first bucket has not started";
  EXPECT_EQ(memory[0].item<double>(), 55);
  reducer->ready(0);
  reducer->start_rest();
  (void)reducer->finish();
  ASSERT_EQ(script.calls.size(), 3);
  EXPECT_TRUE(torch::equal(script.calls[0].input, torch::full({2}, 3.0)));
  EXPECT_TRUE(torch::equal(script.calls[2].input, torch::full({2}, 3.0)));
}

TEST_F(ReductionInARing, WaitsForTheBucketInItsMemoryOnlyAtTheEnd) {
  give({0, 1, 2, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  for (const int i : {0, 1, 2, 3}) reducer->ready(i);
  reducer->start_rest();
  EXPECT_EQ(script.calls.size(), 2) << "the first bucket is still in the memory of the third";
  EXPECT_FALSE(script.calls[0].waited);
  reducer->advance();
  EXPECT_EQ(script.calls.size(), 2);
  (void)reducer->finish();
  ASSERT_EQ(script.calls.size(), 3);
  EXPECT_TRUE(torch::equal(script.calls[2].input, torch::full({2}, 3.0)));
  ASSERT_EQ(kept.size(), 3);
  EXPECT_EQ(kept[0].first, 0);
  EXPECT_EQ(kept_of(0, 0), kAverage) << "kept before the third bucket came";
  EXPECT_EQ(kept_of(1, 2), kAverage + 1);
  EXPECT_EQ(kept_of(2, 0), kAverage + 2);
  EXPECT_GT(reducer->record().buckets[2].room.count(), 0);
  EXPECT_EQ(reducer->record().buckets[1].room.count(), 0);
  for (const auto& parameter : parameters) EXPECT_FALSE(parameter.grad().defined());
}

TEST_F(ReductionInARing, StartsABucketAsSoonAsItsMemoryIsFree) {
  give({0, 1, 2, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->start_rest();
  EXPECT_EQ(script.calls.size(), 2);
  script.is_done = true;
  reducer->advance();
  EXPECT_EQ(script.calls.size(), 3);
  EXPECT_EQ(kept.size(), 1);
  (void)reducer->finish();
  EXPECT_EQ(kept.size(), 3);
  EXPECT_EQ(reducer->record().buckets[2].room.count(), 0);
}

TEST_F(ReductionInARing, SendsZerosForParametersWithoutAGradient) {
  give({0, 2}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->start_rest();
  (void)reducer->finish();
  EXPECT_TRUE(torch::equal(script.calls[1].input, torch::tensor({0.0F, 0.0F, 3.0F, 3.0F})));
  EXPECT_TRUE(torch::equal(script.calls[2].input, torch::zeros({2})))
      << "not what the first bucket left there";
  EXPECT_EQ(script.maps.size(), 1);
}

TEST_F(ReductionInARing, NotesNonFiniteGradientsWhenTheyMove) {
  give({0, 1, 2}, 3);
  give({3}, kInfinity);
  reducer->begin({.sum = 1}, 1);
  reducer->start_rest();
  (void)reducer->finish();
  EXPECT_EQ(std::vector<int>(reducer->non_finite().begin(), reducer->non_finite().end()),
            std::vector<int>{3});
  EXPECT_TRUE((script.calls[2].flags.any & StepFlags::kNonFinite) != 0);
}

TEST_F(ReductionInARing, AddsGradientsOfSeveralBackwards) {
  give({0, 1, 2, 3}, 3);
  give({0, 1, 2, 3}, 4);
  EXPECT_TRUE(torch::equal(parameters[2].grad(), torch::full({kLength}, 7.0)));
  reducer->begin({.sum = 1}, 1);
  reducer->start_rest();
  (void)reducer->finish();
  EXPECT_TRUE(torch::equal(script.calls[0].input, torch::full({2}, 7.0)));
}

TEST_F(ReductionInARing, CompletesItsCallsWhenABackwardHasFailed) {
  give({0}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->ready(0);
  reducer->start_rest_as_failed();
  EXPECT_EQ(script.calls.size(), 3);
  EXPECT_TRUE(script.calls[0].waited) << "the third bucket needs its memory";
  (void)reducer->finish();
  EXPECT_TRUE(reducer->has_failed());
}

// As SendsZerosForParametersWithoutAGradient: what is in the memory belongs to an earlier bucket.
TEST_F(ReductionInARing, SendsZerosBetweenParameters) {
  use({{.parameters = {0, 1}, .padding = 1}, {.parameters = {2, 3}, .begin = 4, .padding = 3}});
  give({0, 1, 2, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->start_rest();
  (void)reducer->finish();
  EXPECT_TRUE(torch::equal(script.calls[0].input, torch::tensor({3.0, 3.0, 3.0, 3.0, 0.0})));
  EXPECT_TRUE(
      torch::equal(script.calls[1].input, torch::tensor({3.0, 3.0, 3.0, 3.0, 0.0, 0.0, 0.0})));
}

TEST_F(ReductionInARing, SendsAStaleGradientExceptFromARankWithoutSamples) {
  for (const std::int64_t samples : {1, 0}) {
    give({3}, 3);
    reducer->forget();
    ASSERT_EQ(slots->state(3), GradientState::stale);
    script.calls.clear();
    reducer->begin({.sum = samples}, 1);
    reducer->start_rest();
    (void)reducer->finish();
    EXPECT_FALSE(reducer->contributes(3));
    EXPECT_TRUE(torch::equal(script.calls[2].input, torch::full({2}, samples > 0 ? 3.0 : 0.0)));
  }
}

// The second bucket shares memory with the first one.
std::vector<InRing> two_at_the_begin() {
  return {{.parameters = {0}},
          {.parameters = {1}},
          {.parameters = {2}, .begin = 2},
          {.parameters = {3}, .begin = 4}};
}

TEST_F(ReductionInARing, ReadyWaitsALittleForMemory) {
  use(two_at_the_begin());
  script.done_after = 5;
  give({0, 1, 2, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->ready(0);
  EXPECT_EQ(script.calls[0].advanced, 1);
  reducer->ready(1);
  ASSERT_EQ(script.calls.size(), 2) << "the first bucket was done soon enough";
  EXPECT_EQ(script.calls[0].advanced, 5);
  EXPECT_TRUE(script.calls[0].waited);
  EXPECT_EQ(kept.size(), 1);
  EXPECT_GT(reducer->record().buckets[1].room.count(), 0);
  reducer->start_rest();
  (void)reducer->finish();
  EXPECT_EQ(reducer->record().buckets[2].room.count(), 0) << "it has memory of its own";
  EXPECT_EQ(kept.size(), 4);
}

TEST_F(ReductionInARing, ReadyWaitsInVainOncePerReduction) {
  use(two_at_the_begin());
  give({0, 1, 2, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->ready(0);
  reducer->ready(1);  // gives up after a second
  EXPECT_EQ(script.calls.size(), 1);
  const int looks = script.calls[0].advanced;
  EXPECT_GT(looks, 5);
  EXPECT_GT(reducer->record().buckets[1].room.count(), 0);
  reducer->ready(2);
  EXPECT_LE(script.calls[0].advanced, looks + 2) << "it does not wait again";
  reducer->start_rest();
  EXPECT_EQ(script.calls.size(), 1) << "the backward has ended: no function waits but finish()";
  EXPECT_FALSE(script.calls[0].waited);
  (void)reducer->finish();
  EXPECT_EQ(script.calls.size(), 4);
  EXPECT_TRUE(torch::equal(script.calls[1].input, torch::full({2}, 3.0)));

  script.calls.clear();
  script.done_after = 5;
  give({0, 1, 2, 3}, 4);
  reducer->begin({.sum = 1}, 2);
  reducer->ready(0);
  reducer->ready(1);
  EXPECT_EQ(script.calls.size(), 2) << "the next reduction waits";
}

TEST_F(ReductionInARing, ReadyDoesNotWaitIfBackwardMakesOtherCalls) {
  use(two_at_the_begin(), /*waits=*/false);
  script.done_after = 5;
  give({0, 1, 2, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->ready(0);
  reducer->ready(1);
  EXPECT_EQ(script.calls.size(), 1);
  EXPECT_LT(script.calls[0].advanced, 5) << "not until it is done";
  EXPECT_EQ(reducer->record().buckets[1].room.count(), 0);
  reducer->start_rest();
  (void)reducer->finish();
  EXPECT_EQ(script.calls.size(), 4);
}

TEST_F(ReductionInARing, ABucketOfFrozenParametersNeedsNoMemory) {
  use(two_at_the_begin());
  parameters[1].set_requires_grad(false);
  give({0, 2, 3}, 3);
  reducer->begin({.sum = 1}, 1);
  reducer->ready(0);
  reducer->ready(2);
  EXPECT_EQ(script.calls.size(), 2) << "the frozen one waits for nothing";
  reducer->start_rest();
  (void)reducer->finish();
  EXPECT_EQ(script.calls.size(), 3);
}

}  // namespace
}  // namespace lockstep
