#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/train/autocast.h"
#include "lockstep/train/causal_attention.h"

namespace lockstep {
namespace {

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kWidth = 128;

at::Tensor random_parts(std::int64_t length, std::int64_t batch = 2) {
  torch::manual_seed(length);
  return torch::randn({batch, length, 3 * kWidth}) * 1.5;
}

at::Tensor ours(const at::Tensor& parts) { return causal_attention(parts, kHeads); }

at::Tensor libtorchs(const at::Tensor& parts) {
  const auto heads = parts.unflatten(2, {3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
  return at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0, /*is_causal=*/true)
      .transpose(1, 2)
      .flatten(2);
}

// The same with operators that are differentiable twice.
at::Tensor by_the_book(const at::Tensor& parts) {
  const auto heads = parts.unflatten(2, {3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
  const auto scores = heads[0].matmul(heads[1].transpose(2, 3)) / std::sqrt(kWidth / kHeads);
  const auto later = torch::ones_like(scores, torch::kBool).triu(1);
  const auto weights = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  return weights.softmax(-1).matmul(heads[2]).transpose(1, 2).flatten(2);
}

// d f(parts) / d parts, weighted with numbers that differ between positions.
template <typename Function>
at::Tensor gradient_of(const Function& function, const at::Tensor& parts) {
  const auto input = parts.detach().requires_grad_();
  const auto result = function(input);
  const auto weights = torch::linspace(-1, 2, result.numel(), torch::kDouble).cos();
  return torch::autograd::grad({result}, {input}, {weights.view_as(result).to(result.dtype())})[0];
}

at::Tensor error_of(const at::Tensor& found, const at::Tensor& truth) {
  return (found.to(torch::kDouble) - truth).abs();
}

TEST(CausalAttention, IsAsAccurateAsLibTorchs) {
  for (const auto length : {1, 2, 7, 16, 33, 128, 256}) {
    const auto parts = random_parts(length);
    const auto truth = libtorchs(parts.to(torch::kDouble));
    const auto error = error_of(ours(parts), truth);
    const auto theirs = error_of(libtorchs(parts), truth);
    EXPECT_LE(error.max().item<double>(), theirs.max().item<double>() * 2) << length;
    EXPECT_LE(error.mean().item<double>(), theirs.mean().item<double>() * 2) << length;
  }
}

// The error is at most that of LibTorch's separate operators: in both, the gradient of a key or
// value is one sum over all queries, while LibTorch's fused kernel sums blocks.
TEST(CausalAttention, GradientsAreAsAccurateAsLibTorchs) {
  for (const auto length : {1, 2, 7, 16, 33, 128, 256}) {
    const auto parts = random_parts(length);
    const auto truth = gradient_of(libtorchs, parts.to(torch::kDouble));
    const auto error = error_of(gradient_of(ours, parts), truth);
    const auto one_by_one = error_of(gradient_of(by_the_book, parts), truth);
    const auto theirs = error_of(gradient_of(libtorchs, parts), truth);
    EXPECT_LE(error.max().item<double>(), one_by_one.max().item<double>() * 2) << length;
    EXPECT_LE(error.mean().item<double>(), theirs.mean().item<double>() * 2) << length;
  }
}

TEST(CausalAttention, InBfloat16IsComputedInFloatAndRoundedOnce) {
  const auto parts = random_parts(33).to(torch::kBFloat16);
  const auto wide = parts.to(torch::kFloat);
  EXPECT_TRUE(torch::equal(ours(parts), ours(wide).to(torch::kBFloat16)));
  // The attention weights are rounded in one and not in the other: two roundings of difference.
  EXPECT_TRUE(torch::allclose(gradient_of(ours, parts).to(torch::kFloat), gradient_of(ours, wide),
                              /*rtol=*/1.0 / 64, /*atol=*/1.0 / 64));
}

TEST(CausalAttention, StaysInFloatUnderAutocast) {
  const auto parts = random_parts(16);
  const auto outside = ours(parts), gradient = gradient_of(ours, parts);
  const Autocast lower(torch::kBFloat16);
  EXPECT_TRUE(torch::equal(ours(parts), outside));
  EXPECT_TRUE(torch::equal(gradient_of(ours, parts), gradient));
}

TEST(CausalAttention, TakesAnyLayout) {
  const auto parts = random_parts(7);
  const auto scattered = parts.permute({2, 1, 0}).contiguous().permute({2, 1, 0});
  ASSERT_FALSE(scattered.is_contiguous());
  EXPECT_TRUE(torch::equal(ours(scattered), ours(parts)));
  EXPECT_TRUE(torch::equal(gradient_of(ours, scattered), gradient_of(ours, parts)));
  // The incoming gradient may have any layout too: that of a sum is one expanded number.
  const auto input = parts.clone().requires_grad_();
  const auto result = ours(input);
  const auto of_sum = torch::autograd::grad({result.sum()}, {input}, {}, /*retain_graph=*/true)[0];
  const auto of_ones = torch::autograd::grad({result}, {input}, {torch::ones_like(result)})[0];
  EXPECT_TRUE(torch::equal(of_sum, of_ones));
}

TEST(CausalAttention, IsDifferentiableTwice) {
  const auto second = [](auto function, const at::Tensor& parts) {
    const auto input = parts.clone().requires_grad_();
    const auto result = function(input);
    const auto first = torch::autograd::grad({result.pow(2).sum()}, {input}, {}, {}, true)[0];
    return torch::autograd::grad({first.pow(2).sum()}, {input})[0];
  };
  const auto parts = random_parts(7);
  const auto truth = second(by_the_book, parts.to(torch::kDouble));
  const auto error = error_of(second(ours, parts), truth);
  const auto theirs = error_of(second(by_the_book, parts), truth);
  EXPECT_LE(error.max().item<double>(), theirs.max().item<double>() * 2);
}

TEST(CausalAttention, IsBitIdenticalOnAnyNumberOfThreads) {
  const auto parts = random_parts(128, /*batch=*/5);
  const auto threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto result = ours(parts), gradient = gradient_of(ours, parts);
  at::set_num_threads(3);
  EXPECT_TRUE(torch::equal(ours(parts), result));
  EXPECT_TRUE(torch::equal(gradient_of(ours, parts), gradient));
  at::set_num_threads(threads);
}

TEST(CausalAttention, OfAPositionDoesNotDependOnLaterOnes) {
  for (const auto length : {16, 33}) {
    const auto parts = random_parts(length);
    const auto before = ours(parts);
    for (const auto place : {1, 9, length - 1}) {
      auto changed = parts.clone();
      changed.narrow(1, place, length - place).mul_(-1e3).add_(7);
      EXPECT_TRUE(torch::equal(ours(changed).narrow(1, 0, place), before.narrow(1, 0, place)));
      const auto of_earlier = [&](const at::Tensor& x) { return ours(x).narrow(1, 0, place); };
      const auto gradient = gradient_of(of_earlier, parts);
      EXPECT_TRUE(torch::equal(gradient_of(of_earlier, changed).narrow(1, 0, place),
                               gradient.narrow(1, 0, place)));
      EXPECT_EQ(gradient.narrow(1, place, length - place).abs().max().item<float>(), 0);
    }
  }
}

TEST(CausalAttention, WeightsOfFarLowerScoresAreZero) {
  auto parts = torch::zeros({1, 16, 3 * kWidth});
  parts.narrow(2, 0, 2 * kWidth).narrow(1, 3, 1).fill_(1e3);  // query and key of position 3
  parts.narrow(2, 2 * kWidth, kWidth).copy_(torch::arange(16).view({1, 16, 1}));
  const auto result = ours(parts);
  EXPECT_TRUE(torch::equal(result[0][3], torch::full({kWidth}, 3.0F)));
  EXPECT_TRUE(torch::allclose(result[0][4], torch::full({kWidth}, 2.0F)));
}

TEST(CausalAttention, KeepsNaN) {
  constexpr auto nothing = std::numeric_limits<float>::quiet_NaN();
  constexpr auto infinite = std::numeric_limits<float>::infinity();
  for (const auto bad : {nothing, -nothing, infinite, -infinite}) {
    auto parts = random_parts(33, /*batch=*/1);
    parts[0][20][kWidth] = bad;  // a key of the first head
    const auto expected = by_the_book(parts).isnan();
    EXPECT_TRUE(expected[0][20][0].item<bool>() || bad < 0);
    EXPECT_TRUE(torch::equal(ours(parts).isnan(), expected)) << bad;
  }
  auto parts = random_parts(33, /*batch=*/1);
  parts[0][20][0] = nothing;  // a query: affects that position only
  EXPECT_TRUE(torch::equal(ours(parts).isnan(), by_the_book(parts).isnan()));
  EXPECT_TRUE(gradient_of(ours, parts)[0][20][0].isnan().item<bool>());
}

TEST(CausalAttention, ReportsUnsupportedTensors) {
  EXPECT_TRUE(has_causal_attention(torch::empty({1, kLongestCausalAttention, 12})));
  EXPECT_TRUE(has_causal_attention(torch::empty({1, 1, 12}, torch::kBFloat16)));
  EXPECT_FALSE(has_causal_attention(torch::empty({1, kLongestCausalAttention + 1, 12})));
  EXPECT_FALSE(has_causal_attention(torch::empty({1, 8, 12}, torch::kDouble)));
  EXPECT_FALSE(has_causal_attention(torch::empty({1, 8, 12}, torch::kHalf)));
  EXPECT_FALSE(has_causal_attention(torch::empty({0, 8, 12})));
}

TEST(CausalAttention, RefusesUnsupportedTensors) {
  EXPECT_THROW((void)causal_attention(torch::zeros({1, kLongestCausalAttention + 1, 12}), 2),
               UsageError);
  EXPECT_THROW((void)causal_attention(torch::zeros({1, 8, 12}, torch::kDouble), 2), UsageError);
  EXPECT_THROW((void)causal_attention(torch::zeros({8, 12}), 2), UsageError);
  EXPECT_THROW((void)causal_attention(torch::zeros({1, 8, 12}), 3), UsageError);
  EXPECT_THROW((void)causal_attention(torch::zeros({1, 8, 12}), 0), UsageError);
}

}  // namespace
}  // namespace lockstep
