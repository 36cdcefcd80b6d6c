#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <vector>

#include "lockstep/train/gelu.h"

namespace lockstep {
namespace {

at::Tensor exactly(const at::Tensor& x) { return at::gelu(x.to(torch::kDouble), "tanh"); }

// d f(x) / dx, weighted with `weights`.
template <typename Function>
at::Tensor gradient_of(const Function& function, const at::Tensor& x, const at::Tensor& weights) {
  const auto input = x.detach().clone().requires_grad_();
  (function(input) * weights).sum().backward();
  return input.grad();
}

// Every finite bfloat16, by its bits.
at::Tensor all_bfloat16() {
  const auto bits = torch::arange(0, 65536, torch::kInt32).to(torch::kInt16);
  const auto values = bits.view(torch::kBFloat16);
  return values.masked_select(values.isfinite());
}

// The index of a number in the order of size: adjacent numbers differ by one.
at::Tensor place(const at::Tensor& values) {
  const auto bits = values.contiguous().view(torch::kInt16).to(torch::kInt32);
  return torch::where(bits.lt(0), -(bits.bitwise_and(0x7fff)), bits);
}

TEST(GeluByTanh, IsWithinOneUnitInTheLastPlaceOfTheTrueValueForEveryBfloat16) {
  const auto x = all_bfloat16();
  const auto expected = exactly(x).to(torch::kBFloat16);
  const auto apart = (place(gelu_by_tanh(x)) - place(expected)).abs();
  // Far below zero 1 + tanh cancels in double too; both results are almost zero there.
  const auto counts = x.ge(-5);
  EXPECT_LE(apart.masked_select(counts).max().item<int>(), 1);
  const auto rest = gelu_by_tanh(x).to(torch::kFloat).abs().masked_select(counts.logical_not());
  EXPECT_LE(rest.max().item<float>(), 1e-5);
}

TEST(GeluByTanh, IsAsAccurateInFloatAsLibTorchs) {
  const auto x = torch::linspace(-12, 12, 1 << 20);
  const auto error = (gelu_by_tanh(x).to(torch::kDouble) - exactly(x)).abs();
  const auto theirs = (at::gelu(x, "tanh").to(torch::kDouble) - exactly(x)).abs();
  EXPECT_LE(error.max().item<double>(), theirs.max().item<double>() * 2);
  EXPECT_LE(error.mean().item<double>(), theirs.mean().item<double>() * 2);
}

TEST(GeluByTanh, GradientsAreAsAccurateAsLibTorchs) {
  const auto x = torch::linspace(-12, 12, 1 << 20);
  const auto weights = torch::linspace(-1, 2, 1 << 20);
  const auto libtorchs = [](const at::Tensor& input) { return at::gelu(input, "tanh"); };
  const auto truth = gradient_of(libtorchs, x.to(torch::kDouble), weights.to(torch::kDouble));
  const auto error_of = [&](const at::Tensor& found) {
    return (found.to(torch::kDouble) - truth).abs();
  };
  const auto ours = error_of(gradient_of(gelu_by_tanh, x, weights));
  const auto theirs = error_of(gradient_of(libtorchs, x, weights));
  EXPECT_LE(ours.max().item<double>(), theirs.max().item<double>() * 1.5);
  EXPECT_LE(ours.mean().item<double>(), theirs.mean().item<double>() * 1.5);
  const auto half = x.to(torch::kBFloat16);
  EXPECT_TRUE(torch::allclose(gradient_of(gelu_by_tanh, half, weights.to(torch::kBFloat16)),
                              gradient_of(libtorchs, half, weights.to(torch::kBFloat16)),
                              /*rtol=*/1.0 / 128, /*atol=*/1e-6));
}

TEST(GeluByTanh, HandlesNaNAndHugeValuesAsLibTorchDoes) {
  constexpr auto infinite = std::numeric_limits<float>::infinity();
  const auto x = torch::tensor({-infinite, -3e38F, -1e10F, -100.0F, -0.0F, 0.0F, 100.0F, 1e10F,
                                3e38F, infinite, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_TRUE(torch::equal(gelu_by_tanh(x).nan_to_num(-7), at::gelu(x, "tanh").nan_to_num(-7)));
  const auto finite = x.narrow(0, 2, 6);
  const auto ones = torch::ones_like(finite);
  const auto expected = torch::tensor({0.0F, 0.0F, 0.5F, 0.5F, 1.0F, 1.0F});
  EXPECT_TRUE(torch::equal(gradient_of(gelu_by_tanh, finite, ones), expected));
}

TEST(GeluByTanh, TakesAnyLayoutAndSize) {
  const auto x = torch::linspace(-3, 3, 63).view({7, 9}).t();
  EXPECT_TRUE(torch::equal(gelu_by_tanh(x), gelu_by_tanh(x.contiguous())));
  EXPECT_EQ(gelu_by_tanh(torch::empty({0, 4})).sizes(), (std::vector<std::int64_t>{0, 4}));
  EXPECT_TRUE(torch::equal(gradient_of(gelu_by_tanh, x, torch::ones({1, 1})),
                           gradient_of(gelu_by_tanh, x.contiguous(), torch::ones({9, 7}))));
}

TEST(GeluByTanh, IsDifferentiableTwice) {
  const auto second = [](auto function) {
    const auto x = torch::linspace(-2, 2, 33).view({3, 11}).requires_grad_();
    const auto first = torch::autograd::grad({function(x.t()).sum()}, {x}, {}, {}, true)[0];
    return torch::autograd::grad({first.pow(2).sum()}, {x})[0];
  };
  EXPECT_TRUE(torch::allclose(second(gelu_by_tanh),
                              second([](const at::Tensor& x) { return at::gelu(x, "tanh"); }), 1e-5,
                              1e-6));
}

}  // namespace
}  // namespace lockstep
