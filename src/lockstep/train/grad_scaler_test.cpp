#include "lockstep/train/grad_scaler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct CountingOptimizer {
  void step() { ++steps; }
  int steps = 0;
};

at::Tensor parameter_with(const at::Tensor& gradient) {
  auto parameter = torch::zeros_like(gradient).set_requires_grad(true);
  parameter.mutable_grad() = gradient;
  return parameter;
}

TEST(GradScaler, ScalesAndUnscalesByItsScale) {
  const GradScaler scaler;
  EXPECT_EQ(scaler.current_scale(), 65536);
  const auto loss = torch::tensor(0.5F, torch::requires_grad());
  EXPECT_EQ(scaler.scale(loss).item<float>(), 32768);
  EXPECT_EQ(scaler.scale(loss.to(at::kHalf)).scalar_type(), at::kFloat)
      << "float16 does not represent 65536";

  GradScaler other;
  auto parameter = parameter_with(torch::tensor({65536.F, -3.F, 0.F}));
  EXPECT_TRUE(other.unscale({parameter, torch::zeros({2}, torch::requires_grad())}));
  EXPECT_TRUE(parameter.grad().equal(torch::tensor({1.F, -3.F / 65536, 0.F})));
}

TEST(GradScaler, AdaptsAsLibTorchsOwnKernelDoes) {
  GradScaler scaler({.initial_scale = 1000, .growth_factor = 3, .growth_interval = 2});
  auto scale = torch::tensor(1000.F);
  auto growing = torch::tensor(0, torch::kInt);
  CountingOptimizer optimizer;
  int good = 0;
  for (const bool bad : {false, false, false, true, false, true, true, false, false, false}) {
    auto parameter = parameter_with(torch::tensor({1.F, bad ? kInfinity : 2.F}));
    EXPECT_EQ(scaler.unscale({parameter}), !bad);
    EXPECT_EQ(scaler.step(optimizer), !bad);
    scaler.update();
    good += bad ? 0 : 1;
    at::_amp_update_scale_(scale, growing, torch::tensor(bad ? 1.F : 0.F), 3, 0.5, 2);
    EXPECT_EQ(scaler.current_scale(), scale.item<double>());
  }
  EXPECT_EQ(optimizer.steps, good);
  EXPECT_EQ(scaler.num_skipped(), 3);
}

TEST(GradScaler, NeverGrowsBeyondTheRangeOfFloat) {
  GradScaler scaler({.initial_scale = 2e38, .growth_interval = 1});
  auto parameter = parameter_with(torch::ones({1}));
  scaler.unscale({parameter});
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), static_cast<double>(2e38F));
}

TEST(GradScaler, FindsNonFiniteValuesAtEveryPositionDtypeAndStride) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const std::int64_t position : {0, 3, 15, 16, 36}) {
      for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (const bool transposed : {false, true}) {
          GradScaler scaler({.initial_scale = 4});
          auto gradient = torch::arange(37 * 3).to(dtype).view({37, 3});
          if (transposed) gradient = gradient.t().slice(1, 0, 37, 1).slice(0, 0, 2);
          const auto before = gradient.clone();
          auto fine = parameter_with(gradient.clone());
          EXPECT_TRUE(scaler.unscale({fine})) << dtype;
          EXPECT_TRUE(fine.grad().equal(before / 4)) << dtype;
          gradient.select(transposed ? 1 : 0, position).fill_(bad);
          auto parameter = parameter_with(gradient);
          EXPECT_FALSE(scaler.unscale({parameter})) << dtype << " at " << position;
        }
      }
    }
  }
}

TEST(GradScaler, RoundsBfloat16AsLibTorchDoes) {
  const auto values = torch::randn({1000}).to(at::kBFloat16);
  GradScaler scaler({.initial_scale = 3});
  auto parameter = parameter_with(values.clone());
  scaler.unscale({parameter});
  const float third = static_cast<float>(1.0 / 3.0);
  EXPECT_TRUE(parameter.grad().equal((values.to(at::kFloat) * third).to(at::kBFloat16)));
}

TEST(GradScaler, UnscalesSparseGradientsByTheirSum) {
  const auto indices = torch::tensor({{1, 1}});
  // Each half is finite in float32, the sum is not.
  const auto gradient = at::sparse_coo_tensor(indices, torch::tensor({3e38F, 3e38F}), {4});
  auto parameter = torch::zeros({4}, torch::requires_grad());
  parameter.mutable_grad() = gradient;
  GradScaler scaler;
  EXPECT_FALSE(scaler.unscale({parameter}));
}

TEST(GradScaler, UnscalesFlatBuffersAsTensors) {
  torch::nn::Linear layer(5, 3);
  ProcessGroup group(World::alone());
  FlatParameters flat(*layer, group);
  layer->weight.mutable_grad() = torch::full({3, 5}, 8.F);
  GradScaler scaler({.initial_scale = 4});
  EXPECT_TRUE(scaler.unscale(flat));
  EXPECT_TRUE(layer->weight.grad().equal(torch::full({3, 5}, 2.F)));
  EXPECT_FALSE(layer->bias.grad().defined());
  EXPECT_THROW(scaler.unscale(flat), UsageError);
  scaler.update();
  layer->bias.mutable_grad() = torch::full({3}, kInfinity);
  EXPECT_FALSE(scaler.unscale(flat));
  EXPECT_TRUE(layer->weight.grad().equal(torch::full({3, 5}, 0.5F)));
}

TEST(GradScaler, SkipsAStepThatAnotherRankMustSkip) {
  GradScaler scaler;
  auto parameter = parameter_with(torch::ones({1}));
  EXPECT_FALSE(scaler.unscale({parameter}, {.found_elsewhere = true}));
  CountingOptimizer optimizer;
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 32768);
}

TEST(GradScaler, RefusesCallsInTheWrongOrder) {
  GradScaler scaler;
  CountingOptimizer optimizer;
  EXPECT_THROW(scaler.step(optimizer), UsageError);
  EXPECT_THROW(scaler.update(), UsageError);
  auto parameter = parameter_with(torch::ones({1}));
  scaler.unscale({parameter});
  EXPECT_THROW(scaler.unscale({parameter}), UsageError);
  scaler.update();
  EXPECT_NO_THROW(scaler.unscale({parameter}));
  auto half = parameter_with(torch::ones({1}).to(at::kHalf));
  EXPECT_THROW(scaler.unscale({half}), UsageError);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), UsageError);
}

TEST(GradScaler, ChangesNothingWhenDisabled) {
  GradScaler scaler({.enabled = false});
  const auto loss = torch::ones({});
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  auto parameter = parameter_with(torch::ones({1}));
  EXPECT_TRUE(scaler.unscale({parameter}));
  CountingOptimizer optimizer;
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(parameter.grad().item<float>(), 1);
  EXPECT_EQ(scaler.current_scale(), 1);
}

TEST(GradScaler, ResumesFromItsJson) {
  GradScaler scaler({.growth_interval = 3});
  auto parameter = parameter_with(torch::ones({1}));
  for (int i = 0; i < 2; ++i) {
    scaler.unscale({parameter});
    scaler.update();
  }
  GradScaler again({.growth_interval = 3});
  again.load_state_json(scaler.state_json());
  again.unscale({parameter});
  again.update();
  EXPECT_EQ(again.current_scale(), 131072) << "the two finite steps before count";
  EXPECT_THROW(again.load_state_json("{}"), UsageError);
  EXPECT_THROW(again.load_state_json(R"({"scale":-1})"), UsageError);
}

}  // namespace
}  // namespace lockstep
