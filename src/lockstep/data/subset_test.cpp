#include "lockstep/data/subset.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep {
namespace {

TensorDataset numbers(std::int64_t count) {
  return TensorDataset({{"input", torch::arange(count)}});
}

TEST(Subset, SampleIIsSampleIndicesIOfTheData) {
  const auto data = numbers(10);
  const Subset part(data, {7, 2, 2, 9});
  ASSERT_EQ(part.size(), 4);
  const RowsBuffer buffer(part.layout(), 3);
  const auto rows = buffer.rows(3);
  part.read(std::vector<std::int64_t>{3, 0, 1}, rows);
  EXPECT_TRUE(torch::equal(rows.tensor(0), torch::tensor({9, 7, 2}, torch::kInt64)));
}

TEST(Subset, OtherSamplesOrOtherDataHaveAnotherId) {
  const auto data = numbers(10);
  const auto other = numbers(11);
  const Subset part(data, {1, 2});
  EXPECT_EQ(part.id(), Subset(data, {1, 2}).id());
  EXPECT_NE(part.id(), Subset(data, {1, 3}).id());
  EXPECT_NE(part.id(), Subset(other, {1, 2}).id());
  EXPECT_NE(part.id(), data.id());
}

TEST(Subset, RefusesInvalidIndices) {
  const auto data = numbers(10);
  EXPECT_THROW(Subset(data, {}), UsageError);
  EXPECT_THROW(Subset(data, {-1}), UsageError);
  EXPECT_THROW(Subset(data, {10}), UsageError);
}

TEST(SplitSamples, PartsAreWholeDisjointAndAFunctionOfTheSeed) {
  const auto parts = split_samples(1000, 0.1, 7);
  EXPECT_EQ(parts.chosen.size(), 100u);
  std::vector<std::int64_t> all(parts.chosen);
  all.insert(all.end(), parts.remainder.begin(), parts.remainder.end());
  std::sort(all.begin(), all.end());
  std::vector<std::int64_t> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(split_samples(1000, 0.1, 7).chosen, parts.chosen);
  EXPECT_NE(split_samples(1000, 0.1, 8).chosen, parts.chosen);
  EXPECT_NE(parts.chosen.back(), 99) << "validation samples are spread over the data";
}

TEST(SplitSamples, NeitherPartMayBeEmpty) {
  EXPECT_THROW((void)split_samples(10, 0.01, 0), UsageError);
  EXPECT_THROW((void)split_samples(10, 1, 0), UsageError);
}

}  // namespace
}  // namespace lockstep
