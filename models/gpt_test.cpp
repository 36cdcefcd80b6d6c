#include "models/gpt.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/autocast.h"

namespace lockstep::models {
namespace {

constexpr GptOptions kSmall{.vocabulary = 50, .context = 16, .layers = 3, .heads = 2, .width = 24};

std::int64_t count(torch::nn::Module& net) {
  std::int64_t sum = 0;
  for (const auto& parameter : net.parameters()) sum += parameter.numel();
  return sum;
}

TEST(Gpt, CountsParametersAsPublished) {
  EXPECT_EQ(num_parameters(gpt_shape("small")), 124'439'808);
  EXPECT_EQ(num_parameters(gpt_shape("medium")), 354'823'168);
  EXPECT_EQ(num_parameters(gpt_shape("large")), 774'030'080);
  EXPECT_EQ(num_parameters(gpt_shape("xl")), 1'557'611'200);
}

TEST(Gpt, HasTheParametersThatAreCounted) {
  for (const auto head : {GptHead::tied, GptHead::separate}) {
    for (auto options : {kSmall, gpt_shape("tiny")}) {
      options.head = head;
      Gpt net(options);
      EXPECT_EQ(count(*net), num_parameters(options));
      EXPECT_EQ(net->named_parameters().contains("lm_head.weight"), head == GptHead::separate);
    }
  }
}

TEST(Gpt, SmallHasAsManyFloatsAsPublished) {
  Gpt net(gpt_shape("small"));
  EXPECT_EQ(count(*net), 124'439'808);
}

TEST(Gpt, ALogitDependsOnNoLaterToken) {
  torch::manual_seed(1);
  Gpt net(kSmall);
  auto tokens = torch::randint(0, 40, {2, 16});
  const auto before = net->forward(tokens);
  tokens[0][9] = 49;
  const auto after = net->forward(tokens);
  EXPECT_TRUE(before[0].narrow(0, 0, 9).equal(after[0].narrow(0, 0, 9)));
  EXPECT_TRUE(before[1].equal(after[1]));
  for (int position = 9; position < 16; ++position) {
    EXPECT_FALSE(before[0][position].equal(after[0][position])) << position;
  }
}

TEST(Gpt, InitialWeightsAreThoseOfGpt2) {
  torch::manual_seed(1);
  const GptOptions options{
      .vocabulary = 500, .context = 100, .layers = 8, .heads = 4, .width = 128};
  Gpt net(options);
  for (const auto& named : net->named_parameters()) {
    const auto& name = named.key();
    const auto& value = named.value();
    if (name.ends_with("bias")) {
      EXPECT_EQ(value.abs().max().item<double>(), 0) << name;
    } else if (name.find("ln_") != std::string::npos) {
      EXPECT_TRUE(value.equal(torch::ones_like(value))) << name;
    } else {
      const double wanted = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(2.0 * 8) : 0.02;
      // The estimate from n draws has a relative standard error of 1/√(2n); the limit is five times
      // that.
      const double slack = 5 * wanted / std::sqrt(2.0 * static_cast<double>(value.numel()));
      EXPECT_NEAR(value.std().item<double>(), wanted, slack) << name;
    }
  }
  // So the initial logits are nearly equal, and the loss is that of a uniform guess.
  const auto tokens = torch::randint(0, 500, {4, 101});
  const auto logits = net->forward(tokens.narrow(1, 0, 100));
  const auto loss =
      torch::cross_entropy_loss(logits.view({-1, 500}), tokens.narrow(1, 1, 100).reshape({-1}));
  EXPECT_NEAR(loss.item<double>(), std::log(500), 0.1);
}

TEST(Gpt, RecomputedBlocksGiveTheSameGradients) {
  for (const double dropout : {0.0, 0.2}) {  // attention in our own kernel, and in LibTorch's
    auto options = kSmall;
    options.dropout = dropout;
    torch::manual_seed(1);
    Gpt plain(options);
    torch::manual_seed(1);
    Gpt recomputed(options);
    EXPECT_EQ(recompute_blocks(*recomputed), 3);
    const auto tokens = torch::randint(0, 50, {2, 16});
    for (auto* net : {&plain, &recomputed}) {
      torch::manual_seed(2);  // the same elements are dropped
      (*net)->forward(tokens).square().mean().backward();
    }
    for (const auto& named : plain->named_parameters()) {
      EXPECT_TRUE(named.value().grad().equal(recomputed->named_parameters()[named.key()].grad()))
          << named.key() << " with dropout " << dropout;
    }
  }
}

TEST(Gpt, OwnKernelsAgreeWithLibTorchs) {
  const auto tokens = torch::randint(0, 50, {2, 13});
  for (const auto precision : {torch::kFloat, torch::kBFloat16}) {
    std::vector<at::Tensor> logits, gradients;
    for (const auto kernels : {GptKernels::own, GptKernels::libtorch}) {
      auto options = kSmall;
      options.kernels = kernels;
      torch::manual_seed(1);
      Gpt net(options);
      const Autocast lower(precision);
      logits.push_back(net->forward(tokens));
      logits.back().to(torch::kFloat).square().sum().backward();
      gradients.push_back(net->named_parameters()["h.0.attn.c_attn.weight"].grad());
    }
    // A few units in the last place of the largest terms, through three blocks.
    const double part = precision == torch::kFloat ? 1e-5 : 1.0 / 32;
    for (const auto& both : {logits, gradients}) {
      ASSERT_EQ(both[0].scalar_type(), both[1].scalar_type());
      const auto apart = (both[0] - both[1]).abs().max().item<double>();
      EXPECT_LE(apart, part * both[1].abs().max().item<double>());
    }
  }
}

TEST(Gpt, TiedHeadHasGradientsOfBothUses) {
  Gpt net(kSmall);
  net->forward(torch::zeros({1, 4}, torch::kLong)).sum().backward();
  const auto gradient = net->named_parameters()["wte.weight"].grad();
  EXPECT_NE(gradient[49].abs().sum().item<double>(), 0) << "a token that is only an output";
}

TEST(Gpt, RefusesInvalidSizesAndSequences) {
  EXPECT_THROW((void)gpt_shape("huge"), UsageError);
  auto heads = kSmall;
  heads.heads = 5;
  EXPECT_THROW(Gpt{heads}, UsageError);
  auto layers = kSmall;
  layers.layers = 0;
  EXPECT_THROW(Gpt{layers}, UsageError);
  Gpt net(kSmall);
  EXPECT_THROW(net->forward(torch::zeros({1, 17}, torch::kLong)), UsageError);
}

}  // namespace
}  // namespace lockstep::models
