#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models/gelu_internal.h"

namespace lockstep::models {
namespace {

// Every finite bfloat16, as it is stored.
at::Tensor all_bfloat16() {
  const auto bits = torch::arange(0, 65536, torch::kInt32).to(torch::kInt16);
  const auto values = bits.view(torch::kBFloat16);
  return values.masked_select(values.isfinite());
}

// Which of the numbers in order of size it is: neighbours differ by one.
at::Tensor place(const at::Tensor& values) {
  const auto bits = values.contiguous().view(torch::kInt16).to(torch::kInt32);
  return torch::where(bits.lt(0), -(bits.bitwise_and(0x7fff)), bits);
}

TEST(GeluByTanh, IsWithinOneUnitInTheLastPlaceOfTheTrueValueForEveryBfloat16) {
  const auto x = all_bfloat16();
  const auto expected = at::gelu(x.to(torch::kDouble), "tanh").to(torch::kBFloat16);
  const auto apart = (place(gelu_by_tanh(x)) - place(expected)).abs();
  // Below: results so near zero that 1 + tanh has lost its last bits in float32, as LibTorch's own.
  const auto counts = expected.to(torch::kFloat).abs().ge(1e-5).logical_or(x.ge(0));
  EXPECT_LE(apart.masked_select(counts).max().item<int>(), 1);
  const auto rest = (gelu_by_tanh(x).to(torch::kFloat) - expected.to(torch::kFloat)).abs();
  EXPECT_LE(rest.masked_select(counts.logical_not()).max().item<float>(), 1e-5);
}

TEST(GeluByTanh, InFloatIsLibTorchsOwnBitForBit) {
  const auto x = torch::linspace(-6, 6, 1001);
  EXPECT_TRUE(torch::equal(gelu_by_tanh(x), at::gelu(x, "tanh")));
}

TEST(GeluByTanh, GradientsAreLibTorchs) {
  const auto x = torch::linspace(-6, 6, 1001).to(torch::kBFloat16);
  const auto gradient_of = [&](auto function) {
    const auto input = x.detach().clone().requires_grad_();
    function(input).sum().backward();
    return input.grad();
  };
  EXPECT_TRUE(torch::equal(gradient_of(gelu_by_tanh), gradient_of([](const at::Tensor& input) {
                             return at::gelu(input, "tanh");
                           })));
}

}  // namespace
}  // namespace lockstep::models
