#include "models/gpt_generation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "lockstep/base/error.h"
#include "models/made_up_numbers.h"

namespace lockstep::models {
namespace {

using Tokens = std::vector<std::int64_t>;

constexpr GptOptions kSmall{.vocabulary = 50, .context = 16, .layers = 3, .heads = 2, .width = 24};

Gpt made_up(GptOptions options = kSmall) {
  torch::set_num_threads(1);  // faster for small models
  Gpt net(options);
  fill(*net);
  return net;
}

Tokens generated(const Gpt& net, const Tokens& prompt, const GenerationOptions& options,
                 int count) {
  GptGeneration generation(net, prompt, options);
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(generation.next());
  return tokens;
}

// Logits of the token after `tokens`, without a cache.
at::Tensor plain_logits(Gpt net, const Tokens& tokens) {
  const at::NoGradGuard no_gradients;
  return net->forward(torch::tensor(tokens).unsqueeze(0))[0][std::ssize(tokens) - 1];
}

// The probability of each token, by LibTorch.
at::Tensor likelihoods(const at::Tensor& logits, const GenerationOptions& options) {
  auto wanted = logits.to(torch::kDouble) / options.temperature;
  if (options.top_k > 0) {
    const auto kth = std::get<0>(wanted.topk(options.top_k)).min();
    wanted = wanted.masked_fill(wanted < kth, -std::numeric_limits<double>::infinity());
  }
  return wanted.softmax(0);
}

// Products of one row are summed in another order than those of many: 24 to 96 terms of order one,
// rounded to 2^-24 each, through three blocks.
constexpr double kRounding = 3 * 96 * 0x1p-24;

TEST(GptGeneration, LogitsAreThoseOfAForwardWithoutACache) {
  for (const auto head : {GptHead::tied, GptHead::separate}) {
    auto options = kSmall;
    options.head = head;
    auto net = made_up(options);
    const auto tokens = made_up_tokens(1, 16, 50);
    const auto wanted = net->forward(tokens)[0];
    for (const std::vector<std::int64_t>& parts :
         {Tokens(16, 1), Tokens{16}, Tokens{5, 1, 7, 3}, Tokens{1, 15}, Tokens{15, 1}}) {
      GptCache cache(options.layers, options.context);
      for (const auto part : parts) {
        const auto logits = net->extend(tokens.narrow(1, cache.length(), part), cache);
        const auto plain = wanted[cache.length() - 1];
        EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{1, 1, 50}));
        EXPECT_LE((logits.flatten() - plain).abs().max().item<double>(), kRounding);
        EXPECT_EQ(logits.argmax().item<int>(), plain.argmax().item<int>());
      }
      EXPECT_EQ(cache.length(), 16);
    }
  }
}

TEST(GptGeneration, TheMostLikelyTokensAreThoseOfPlainForwardsAlsoPastTheContext) {
  auto net = made_up();
  for (const auto prompt_length : {1, 9, 16, 40}) {
    Tokens window;
    for (int i = 0; i < prompt_length; ++i) window.push_back(i * 7 % 50);
    const auto tokens = generated(net, window, {.temperature = 0}, 60);
    window.erase(window.begin(), window.end() - std::min(prompt_length, 16));
    for (const auto token : tokens) {
      if (window.size() > 16) window.erase(window.begin(), window.end() - 8);
      ASSERT_EQ(token, plain_logits(net, window).argmax().item<std::int64_t>());
      window.push_back(token);
    }
  }
}

TEST(GptGeneration, AContextOfOneTokenSuffices) {
  auto options = kSmall;
  options.context = 1;
  EXPECT_EQ(generated(made_up(options), {3}, {}, 5).size(), 5u);
}

// Evenly spaced numbers choose each token in proportion to its probability, to within one of them.
TEST(GptGeneration, ATokenIsChosenInProportionToItsProbability) {
  const auto logits = made_up_numbers({50}) * 3;
  const std::span row(logits.data_ptr<float>(), 50);
  for (const double temperature : {0.5, 1.0, 2.0}) {
    for (const std::int64_t top_k : {0, 1, 5, 49, 50, 1000}) {
      const GenerationOptions options{.temperature = temperature, .top_k = top_k};
      auto bounded = options;
      bounded.top_k = std::min<std::int64_t>(top_k, 50);
      const auto wanted = likelihoods(logits, bounded);
      constexpr int num_numbers = 2'000;
      std::map<std::int64_t, int> hits;
      std::int64_t last = 0;
      for (int i = 0; i < num_numbers; ++i) {
        const auto token = choose_token(row, options, (i + 0.5) / num_numbers);
        ASSERT_GE(token, last) << "tokens are in ascending order";
        last = token;
        ++hits[token];
      }
      for (std::int64_t token = 0; token < 50; ++token) {
        EXPECT_NEAR(hits[token], num_numbers * wanted[token].item<double>(), 1 + 1e-6);
      }
    }
  }
}

TEST(GptGeneration, TheNumbersDrawnAreSpreadEvenly) {
  auto net = made_up();
  const Tokens prompt{1, 2, 3};
  const GenerationOptions options{.temperature = 0.7, .top_k = 4};
  const auto wanted = likelihoods(plain_logits(net, prompt), options);
  constexpr int num_seeds = 1'000;
  std::map<std::int64_t, int> hits;
  for (std::uint64_t seed = 0; seed < num_seeds; ++seed) {
    ++hits[GptGeneration(net, prompt, {0.7, 4, seed}).next()];
  }
  for (std::int64_t token = 0; token < 50; ++token) {
    const double likely = wanted[token].item<double>();
    const double deviation = std::sqrt(num_seeds * likely * (1 - likely));
    EXPECT_NEAR(hits[token], num_seeds * likely, 5 * deviation) << token;
  }
}

TEST(GptGeneration, ATextIsAFunctionOfItsSeed) {
  auto net = made_up();
  net->train();
  const auto generator = torch::globalContext().defaultGenerator(torch::kCPU);
  const auto before = generator.get_state();
  const auto text = generated(net, {1, 2}, {.seed = 5}, 30);
  EXPECT_EQ(generated(net, {1, 2}, {.seed = 5}, 30), text);
  EXPECT_NE(generated(net, {1, 2}, {.seed = 6}, 30), text);
  EXPECT_TRUE(generator.get_state().equal(before)) << "it would change training";
}

TEST(GptGeneration, NothingIsDroppedAndNoGraphIsKeptWhileAModelTrains) {
  auto options = kSmall;
  options.dropout = 0.5;
  auto dropping = made_up(options);
  dropping->train();
  EXPECT_EQ(generated(dropping, {1, 2}, {.temperature = 0}, 30),
            generated(made_up(), {1, 2}, {.temperature = 0}, 30));
  EXPECT_TRUE(dropping->is_training());
  GptCache cache(kSmall.layers, kSmall.context);
  EXPECT_FALSE(dropping->extend(torch::zeros({1, 2}, torch::kLong), cache).requires_grad());
}

TEST(GptGeneration, TemperatureZeroAndTopKOneGiveTheMostLikelyToken) {
  const std::vector<float> logits{1, 3, 3, -INFINITY};
  for (const double number : {0.0, 0.5, 1 - 0x1p-53}) {
    EXPECT_EQ(choose_token(logits, {.temperature = 0}, number), 1);
    EXPECT_EQ(choose_token(logits, {.top_k = 1}, number), 1);
  }
  EXPECT_EQ(choose_token(logits, {}, 1 - 0x1p-53), 2) << "a token of probability 0 is not chosen";
  EXPECT_EQ(choose_token(logits, {.temperature = 1e-300}, 0.9), 2) << "no overflow";
}

TEST(GptGeneration, RefusesInvalidOptions) {
  auto net = made_up();
  EXPECT_THROW(GptGeneration(net, Tokens{}, {}), UsageError);
  EXPECT_THROW(GptGeneration(net, Tokens{50}, {}), UsageError);
  EXPECT_THROW(GptGeneration(net, Tokens{-1}, {}), UsageError);
  EXPECT_THROW(GptGeneration(net, Tokens{1}, {.temperature = -1}), UsageError);
  EXPECT_THROW(GptGeneration(net, Tokens{1}, {.temperature = NAN}), UsageError);
  EXPECT_THROW(GptGeneration(net, Tokens{1}, {.top_k = -1}), UsageError);
  EXPECT_THROW((void)choose_token(std::vector<float>{0, NAN}, {}, 0), UsageError);
  EXPECT_THROW((void)choose_token(std::vector<float>{0, INFINITY}, {.temperature = 0}, 0),
               UsageError);
  GptCache cache(kSmall.layers, kSmall.context);
  (void)net->extend(torch::zeros({1, 10}, torch::kLong), cache);
  EXPECT_THROW((void)net->extend(torch::zeros({1, 7}, torch::kLong), cache), UsageError);
}

}  // namespace
}  // namespace lockstep::models
