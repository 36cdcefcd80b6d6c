#include "lockstep/data/torch_data.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sample_dataset.h"

namespace lockstep {
namespace {

class Squares : public torch::data::datasets::Dataset<Squares> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    const auto value = static_cast<float>(index);
    return {torch::full({2, 2}, value), torch::tensor(static_cast<std::int64_t>(index * index))};
  }
  std::optional<std::size_t> size() const override { return 20; }
};

template <typename Data>
void expect_squares(const Data& data, float times) {
  EXPECT_EQ(data.size(), 20);
  EXPECT_EQ(describe(data.layout()), "input: Float [2, 2], target: Long");
  for (const int workers : {0, 2}) {
    Loader loader(data, {.batch = {.local = 5}, .workers = workers});
    for (const auto& batch : loader.epoch()) {
      for (std::int64_t row = 0; row < batch.count(); ++row) {
        const auto sample = batch.samples[static_cast<std::size_t>(row)];
        EXPECT_EQ(batch.input()[row][1][0].template item<float>(),
                  times * static_cast<float>(sample));
        EXPECT_EQ(batch.target()[row].template item<std::int64_t>(), sample * sample);
      }
    }
  }
}

TEST(TorchData, GivesExamplesOneByOneMappedOrStacked) {
  expect_squares(TorchData(Squares()), 1);
  const auto twice = torch::data::transforms::Lambda<torch::data::Example<>>(
      [](torch::data::Example<> example) -> torch::data::Example<> {
        return {example.data * 2, example.target};
      });
  expect_squares(TorchData(Squares().map(twice)), 2);
  expect_squares(TorchData(Squares().map(twice).map(torch::data::transforms::Stack<>())), 2);
}

class Growing : public torch::data::datasets::Dataset<Growing> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    return {torch::zeros({static_cast<std::int64_t>(index) / 3}), torch::tensor(1)};
  }
  std::optional<std::size_t> size() const override { return 20; }
};

TEST(TorchData, RefusesSamplesOfDifferentShapes) {
  const TorchData data((Growing()));
  Loader loader(data, {.batch = {.local = 20}});
  EXPECT_THROW((void)loader.next(), UsageError);
}

TEST(SampleDataset, WritesOneSampleAtATime) {
  const SampleDataset data(20, {{"input", at::kFloat, {2, 2}}, {"target", at::kLong, {}}},
                           [](std::int64_t index, const Rows& row) {
                             row.tensor(0).fill_(index);
                             row.values<std::int64_t>(1)[0] = index * index;
                           });
  expect_squares(data, 1);
}

}  // namespace
}  // namespace lockstep
