#include "lockstep/train/autocast.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/train/attention.h"

namespace lockstep {
namespace {

TEST(Autocast, HoldsForItsScopeAndNests) {
  const auto x = torch::randn({4, 8});
  const auto weight = torch::randn({8, 8}, torch::requires_grad());
  const auto dtype = [&] { return torch::mm(x, weight).scalar_type(); };
  EXPECT_EQ(dtype(), at::kFloat);
  {
    const Autocast outer(at::kBFloat16);
    EXPECT_EQ(dtype(), at::kBFloat16);
    {
      const Autocast inner(at::kHalf);
      EXPECT_EQ(dtype(), at::kHalf) << "the cached bfloat16 copy was used";
      const Autocast off(at::kFloat);
      EXPECT_EQ(dtype(), at::kFloat);
    }
    EXPECT_EQ(dtype(), at::kBFloat16) << "the cached float16 copy was used";
  }
  EXPECT_EQ(dtype(), at::kFloat);
  EXPECT_FALSE(autocast_state(at::kCPU).enabled);
  EXPECT_THROW(Autocast(at::kDouble), UsageError);
}

TEST(Autocast, RestoresItsStateAfterAnException) {
  const auto before = autocast_state(at::kCPU);
  EXPECT_THROW(
      {
        const Autocast lower(at::kBFloat16);
        throw UsageError("on purpose");
      },
      UsageError);
  EXPECT_EQ(autocast_state(at::kCPU), before);
}

TEST(Autocast, UsesChangedWeightsAfterForgetCasts) {
  const auto x = torch::ones({1, 1});
  auto weight = torch::ones({1, 1}, torch::requires_grad());
  const Autocast lower(at::kBFloat16);
  EXPECT_EQ(torch::mm(x, weight).item<float>(), 1);
  {
    const torch::NoGradGuard off;
    weight.fill_(2);
  }
  Autocast::forget_casts();
  EXPECT_EQ(torch::mm(x, weight).item<float>(), 2);
}

TEST(Autocast, CachesNoCastOfAForwardWithoutHistory) {
  const auto x = torch::randn({2, 4});
  auto weight = torch::randn({4, 4}, torch::requires_grad());
  const Autocast lower(at::kBFloat16);
  {
    const UncachedAutocast uncached;
    const torch::NoGradGuard off;
    (void)torch::mm(x, weight);
  }
  torch::mm(x, weight).sum().backward();
  EXPECT_TRUE(weight.grad().defined()) << "the copy made without a graph was reused";
}

TEST(Attention, ChoosesFloatOnTheCpuUnderSixteenBits) {
  const AutocastState on{.enabled = true, .dtype = at::kBFloat16, .device = at::kCPU};
  const AutocastState off{.enabled = false, .dtype = at::kBFloat16, .device = at::kCPU};
  AutocastState cuda = on;
  cuda.device = at::kCUDA;
  const auto keeps = keeps_attention_in_float;
  EXPECT_TRUE(keeps(AttentionPrecision::automatic, at::kFloat, on));
  EXPECT_TRUE(keeps(AttentionPrecision::automatic, at::kBFloat16, off));
  EXPECT_FALSE(keeps(AttentionPrecision::automatic, at::kFloat, off));
  EXPECT_FALSE(keeps(AttentionPrecision::automatic, at::kFloat, cuda));
  EXPECT_TRUE(keeps(AttentionPrecision::float32, at::kFloat, cuda));
  EXPECT_FALSE(keeps(AttentionPrecision::as_given, at::kFloat, on));
  EXPECT_FALSE(keeps(AttentionPrecision::automatic, at::kDouble, on));
}

TEST(Attention, UnderAutocastIsTheFloatResultInTheAutocastDtype) {
  torch::manual_seed(1);
  const auto make = [] { return torch::randn({2, 2, 8, 4}, torch::requires_grad()); };
  const auto query = make();
  const auto key = make();
  const auto value = make();
  const auto exact = attention(query, key, value, {.is_causal = true});
  EXPECT_TRUE(exact.equal(at::scaled_dot_product_attention(query, key, value, {}, 0.0, true)));
  const auto gradient = torch::autograd::grad({exact.sum()}, {query})[0];

  const Autocast lower(at::kBFloat16);
  const auto lowered = attention(query, key, value, {.is_causal = true});
  EXPECT_EQ(lowered.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(lowered.equal(exact.to(at::kBFloat16)));
  // The gradient of a sum is 1 everywhere, in any dtype, so the backward is bit-identical to
  // float's.
  EXPECT_TRUE(torch::autograd::grad({lowered.sum()}, {query})[0].equal(gradient));
  EXPECT_EQ(attention(query, key, value, {.precision = AttentionPrecision::as_given}).scalar_type(),
            at::kBFloat16);
}

TEST(Attention, TakesAMaskOfSixteenBits) {
  const auto x = torch::randn({1, 1, 4, 4}).to(at::kBFloat16);
  const auto mask = torch::zeros({4, 4}).to(at::kBFloat16);
  const auto result = attention(x, x, x, {.mask = mask});
  EXPECT_EQ(result.scalar_type(), at::kBFloat16);
  const auto wide = x.to(at::kFloat);
  EXPECT_TRUE(result.equal(attention(wide, wide, wide).to(at::kBFloat16)));
}

}  // namespace
}  // namespace lockstep
