#include "models/benchmark_transformer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

constexpr BenchmarkTransformerOptions kSmall{
    .vocabulary = 40, .positions = 12, .width = 16, .heads = 4, .hidden = 24, .layers = 2};

TEST(BenchmarkTransformer, HasTheDocumentedNumberOfParameters) {
  BenchmarkTransformer net;
  std::int64_t count = 0;
  for (const auto& parameter : net->parameters()) count += parameter.numel();
  EXPECT_EQ(count, 70'639'616);  // 2 · 50257 · 512 + 512 · 512 + 6 · 3,152,384
  EXPECT_EQ(net->forward(torch::randint(0, 50257, {1, 3})).sizes(),
            (std::vector<std::int64_t>{1, 3, 50257}));
}

TEST(BenchmarkTransformer, EveryPositionSeesEveryOther) {
  torch::manual_seed(1);
  BenchmarkTransformer net(kSmall);
  auto tokens = torch::randint(0, 20, {2, 12});
  const auto before = net->forward(tokens);
  tokens[0][11] = 39;
  const auto after = net->forward(tokens);
  EXPECT_TRUE(before[1].equal(after[1])) << "the sequences of a batch are independent";
  for (int position = 0; position < 12; ++position) {
    EXPECT_FALSE(before[0][position].equal(after[0][position])) << position;
  }
}

TEST(BenchmarkTransformer, DropoutIsActiveOnlyInTraining) {
  auto options = kSmall;
  options.dropout = 0.5;
  BenchmarkTransformer net(options);
  const auto tokens = torch::randint(0, 40, {2, 12});
  EXPECT_FALSE(net->forward(tokens).equal(net->forward(tokens)));
  net->eval();
  EXPECT_TRUE(net->forward(tokens).equal(net->forward(tokens)));
}

TEST(BenchmarkTransformer, RefusesInvalidSizesAndSequences) {
  auto heads = kSmall;
  heads.heads = 3;
  EXPECT_THROW(BenchmarkTransformer{heads}, UsageError);
  auto layers = kSmall;
  layers.layers = 0;
  EXPECT_THROW(BenchmarkTransformer{layers}, UsageError);
  BenchmarkTransformer net(kSmall);
  EXPECT_THROW(net->forward(torch::zeros({1, 13}, torch::kLong)), UsageError);
}

}  // namespace
}  // namespace lockstep::models
