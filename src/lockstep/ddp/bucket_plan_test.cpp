#include "lockstep/ddp/bucket_plan.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Parameters of the given sizes in MiB, of float32.
std::vector<ParameterFacts> of_sizes(const std::vector<std::int64_t>& mebibytes,
                                     at::ScalarType dtype = at::kFloat) {
  std::vector<ParameterFacts> facts;
  for (const auto each : mebibytes) {
    const auto count = each * kMiB / static_cast<std::int64_t>(c10::elementSize(dtype));
    facts.push_back({.name = "p" + std::to_string(facts.size()),
                     .dtype = dtype,
                     .sizes = {count},
                     .strides = {1}});
  }
  return facts;
}

std::vector<std::vector<int>> parameters_of(const BucketPlan& plan) {
  std::vector<std::vector<int>> all;
  for (const auto& bucket : plan.buckets) all.push_back(bucket.parameters);
  return all;
}

using Buckets = std::vector<std::vector<int>>;

TEST(BucketPlan, BeginsSmallAndClosesWhenTheSizeIsReached) {
  const auto layout = lay_out(of_sizes({4, 24, 1, 1}));
  EXPECT_EQ(parameters_of(plan_buckets(layout, 25 * kMiB)), (Buckets{{3}, {2, 1}, {0}}));
  // 24 + 4 MiB share a bucket of 25, which overshoots.
  const auto larger = lay_out(of_sizes({7, 4, 24, 1}));
  EXPECT_EQ(parameters_of(plan_buckets(larger, 25 * kMiB)), (Buckets{{3}, {2, 1}, {0}}));
}

TEST(BucketPlan, CanBeOneBucketOrOneForEachParameter) {
  const auto layout = lay_out(of_sizes({1, 1, 1}));
  EXPECT_EQ(parameters_of(plan_buckets(layout, 1)), (Buckets{{2}, {1}, {0}}));
  EXPECT_EQ(parameters_of(plan_buckets(layout, kOneBucket)), (Buckets{{2, 1, 0}}));
  auto small = of_sizes({0, 0, 0});
  for (auto& each : small) each.sizes = {100};
  EXPECT_EQ(parameters_of(plan_buckets(lay_out(small), 25 * kMiB)), (Buckets{{2, 1, 0}}));
}

TEST(BucketPlan, KeepsDtypesApartEachWithASmallFirstBucket) {
  auto facts = of_sizes({2, 2});
  for (auto& each : of_sizes({2, 2}, at::kBFloat16)) facts.push_back(each);
  const auto plan = plan_buckets(lay_out(facts), 25 * kMiB);
  EXPECT_EQ(parameters_of(plan), (Buckets{{3}, {2}, {1}, {0}}));
  EXPECT_NE(plan.buckets[0].segment, plan.buckets[2].segment);
}

TEST(BucketPlan, FollowsTheOrderInWhichGradientsArrived) {
  const auto layout = lay_out(of_sizes({1, 1, 1, 1}));
  const std::vector<int> arrival{0, 1, 3, 2};
  const auto plan = plan_buckets(layout, kMiB, arrival);
  EXPECT_EQ(parameters_of(plan), (Buckets{{0}, {1}, {3}, {2}}));
  EXPECT_EQ(plan.bucket_of, (std::vector<int>{0, 1, 3, 2}));
  EXPECT_EQ(parameters_of(plan_buckets(layout, kMiB, std::vector<int>{2})),
            (Buckets{{2}, {3}, {1}, {0}}))
      << "a parameter without a gradient is expected last";
}

TEST(BucketPlan, KeepsFrozenParametersInBucketsOfTheirOwn) {
  auto facts = of_sizes({0, 0, 0});
  facts[1].trains = false;
  for (auto& each : facts) each.sizes = {100};
  const auto plan = plan_buckets(lay_out(facts), 25 * kMiB);
  EXPECT_EQ(parameters_of(plan), (Buckets{{2, 0}, {1}}));
}

TEST(BucketPlan, CoversEveryElementOnce) {
  const auto layout = lay_out(of_sizes({3, 1, 0, 30, 2, 5}));
  for (const std::size_t bytes : {1UL, 64UL << 10, 1UL << 20, 25UL << 20, 1UL << 40}) {
    const auto plan = plan_buckets(layout, bytes);
    std::int64_t covered = 0;
    for (const auto& bucket : plan.buckets) {
      for (const int index : bucket.parameters) {
        const auto& slot = layout.slots[static_cast<std::size_t>(index)];
        EXPECT_GE(slot.begin, bucket.begin);
        EXPECT_LE(slot.begin + slot.count, bucket.end);
        covered += slot.count;
      }
    }
    EXPECT_EQ(covered, 41 * kMiB / 4);
  }
}

}  // namespace
}  // namespace lockstep
