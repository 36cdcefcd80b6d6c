#include "lockstep/data/tensor_dataset.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(TensorDataset, GivesTheRowsThatIndexingGives) {
  torch::manual_seed(1);
  const auto input = torch::randn({50, 3, 4});
  const auto target = torch::randint(0, 10, {50});
  const TensorDataset data({{"input", input}, {"target", target}});
  EXPECT_EQ(data.size(), 50);
  EXPECT_EQ(describe(data.layout()), "input: Float [3, 4], target: Long");
  const std::vector<std::int64_t> indices{49, 0, 7, 7, 23};
  const RowsBuffer buffer(data.layout(), 5);
  data.read(indices, buffer.rows(5));
  const auto wanted = torch::tensor(indices);
  EXPECT_TRUE(torch::equal(buffer.rows(5).tensor(0), input.index_select(0, wanted)));
  EXPECT_TRUE(torch::equal(buffer.rows(5).tensor(1), target.index_select(0, wanted)));
}

TEST(TensorDataset, NormalizesBytesWhileItGathers) {
  torch::manual_seed(2);
  const auto images = torch::randint(0, 256, {20, 3, 5, 5}, torch::kByte);
  const TensorDataset data(
      {{"input", images, Normalization{.mean = {0.1, 0.2, 0.3}, .stddev = {0.5, 0.6, 0.7}}}});
  const std::vector<std::int64_t> indices{3, 19, 0};
  const RowsBuffer buffer(data.layout(), 3);
  data.read(indices, buffer.rows(3));
  const auto mean = torch::tensor({0.1, 0.2, 0.3}).view({3, 1, 1});
  const auto stddev = torch::tensor({0.5, 0.6, 0.7}).view({3, 1, 1});
  const auto expected =
      (images.index_select(0, torch::tensor(indices)).to(torch::kFloat) / 255 - mean) / stddev;
  // One multiplication and one addition instead of two divisions and a subtraction: values up to 2
  // differ by a few units in the last place.
  EXPECT_TRUE(torch::allclose(buffer.rows(3).tensor(0), expected, 0, 1e-6));
}

TEST(TensorDataset, ReadsViewsThatAreNotContiguous) {
  const auto whole = torch::arange(24).view({4, 6}).t();  // [6, 4]
  const TensorDataset data({{"input", whole}});
  const RowsBuffer buffer(data.layout(), 1);
  data.read(std::vector<std::int64_t>{2}, buffer.rows(1));
  EXPECT_TRUE(torch::equal(buffer.rows(1).tensor(0)[0], whole[2]));
}

TEST(TensorDataset, HasAnIdThatFollowsTheContents) {
  const auto id = [](const torch::Tensor& tensor, const char* name = "input") {
    return TensorDataset({{name, tensor}}).id();
  };
  const auto tensor = torch::arange(10);
  EXPECT_EQ(id(tensor), id(tensor.clone()));
  EXPECT_NE(id(tensor), id(tensor + 1));
  EXPECT_NE(id(tensor), id(tensor.view({5, 2})));
  EXPECT_NE(id(tensor), id(tensor, "other"));
  EXPECT_EQ(TensorDataset({{"input", tensor}}, {.id = 5}).id(), 5u);
}

TEST(TensorDataset, RefusesInvalidFields) {
  const auto ten = torch::zeros({10, 2});
  EXPECT_THROW(TensorDataset({{"a", ten}, {"b", torch::zeros({9})}}), UsageError);
  EXPECT_THROW(TensorDataset({{"a", ten}, {"a", ten}}), UsageError);
  EXPECT_THROW(TensorDataset({{"a", torch::Tensor()}}), UsageError);
  EXPECT_THROW(TensorDataset({{"a", torch::tensor(1)}}), UsageError);
  EXPECT_THROW(TensorDataset(std::vector<TensorField>{}), UsageError);
  EXPECT_THROW(TensorDataset({{"a", ten, Normalization{}}}), UsageError);
  const auto bytes = torch::zeros({10, 3, 4, 4}, torch::kByte);
  EXPECT_THROW(TensorDataset({{"a", bytes, Normalization{{0, 0}, {1, 1}}}}), UsageError);
  EXPECT_THROW(TensorDataset({{"a", bytes, Normalization{{0}, {0}}}}), UsageError);
}

}  // namespace
}  // namespace lockstep
