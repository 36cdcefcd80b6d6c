// SGD, Adam and AdamW against LibTorch's fused kernels and against torch::optim.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/sgd.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

torch::nn::Sequential make_net(at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(37, 19), torch::nn::Tanh(),
                            torch::nn::Linear(19, 11));
  net->to(dtype);
  return net;
}

void give_gradients(torch::nn::Sequential& net, std::uint64_t seed) {
  torch::manual_seed(seed);
  for (auto& parameter : net->parameters()) {
    const auto random = torch::randn(parameter.sizes()) * torch::rand({1}).pow(4);
    parameter.mutable_grad() = random.to(parameter.scalar_type());
  }
}

// The distance between floats in units in the last place.
std::int64_t ulps_apart(const at::Tensor& left, const at::Tensor& right) {
  const auto ordinal = [](const at::Tensor& tensor) {
    const auto bits = tensor.contiguous().view(at::kInt).to(at::kLong);
    return torch::where(bits < 0, -(bits & 0x7FFFFFFF), bits);
  };
  return (ordinal(left) - ordinal(right)).abs().max().item<std::int64_t>();
}

at::Tensor state_of(FlatOptimizer& optimizer, const std::string& name) {
  for (const auto& [key, tensor] : optimizer.named_tensors()) {
    if (key == name) return tensor;
  }
  ADD_FAILURE() << "no state " << name;
  return {};
}

class Optimizers : public ::testing::Test {
 protected:
  ProcessGroup group{World::alone()};
  torch::nn::Sequential net = make_net();
  FlatParameters flat{*net, group};
};

// The fused kernels use fused multiply-add where we round twice, and divide by sqrt(1 - beta2^t)
// where we multiply by its inverse. The averages differ by one rounding of a sum whose terms may
// cancel, so the tolerance is relative to the larger term; for parameters it is relative to their
// size.
void expect_close(const at::Tensor& actual, const at::Tensor& expected, double size) {
  const auto tolerance = 2 * size * std::numeric_limits<float>::epsilon();
  EXPECT_LE((actual - expected).abs().max().item<double>(), tolerance);
}

class OneStep : public Optimizers, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Steps, OneStep, ::testing::Values(1, 2, 10, 1000));

TEST_P(OneStep, OfAdamAndAdamWAgreesWithLibTorchsFusedKernels) {
  for (const bool decoupled : {true, false}) {
    for (const double beta1 : {0.9, 0.3}) {
      std::unique_ptr<FlatOptimizer> optimizer;
      if (decoupled) {
        optimizer = std::make_unique<AdamW>(
            flat, AdamWOptions{.lr = 3e-2, .betas = {beta1, 0.999}, .weight_decay = 0.1});
      } else {
        optimizer = std::make_unique<Adam>(
            flat, AdamOptions{.lr = 3e-2, .betas = {beta1, 0.999}, .weight_decay = 0.1});
      }
      give_gradients(net, 8);
      // Random state, equal for both.
      Tensors values, gradients, averages, squares, steps;
      for (auto& parameter : flat.parameters()) {
        state_of(*optimizer, parameter.name + ".exp_avg").normal_();
        state_of(*optimizer, parameter.name + ".exp_avg_sq").uniform_(1e-6, 2);
        state_of(*optimizer, parameter.name + ".step").fill_(GetParam() - 1);
        values.push_back(parameter.tensor.detach().clone());
        gradients.push_back(parameter.tensor.grad().clone());
        averages.push_back(state_of(*optimizer, parameter.name + ".exp_avg").clone());
        squares.push_back(state_of(*optimizer, parameter.name + ".exp_avg_sq").clone());
        steps.push_back(torch::tensor(static_cast<float>(GetParam())));
      }
      optimizer->step();
      const auto run_fused = [&](auto&& fused) {
        fused(values, gradients, averages, squares, Tensors(), steps, 3e-2, beta1, 0.999, 0.1,
              1e-8);
      };
      if (decoupled) {
        run_fused([](auto&&... given) { at::_fused_adamw_(given..., false, false); });
      } else {
        run_fused([](auto&&... given) { at::_fused_adam_(given..., false, false); });
      }
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto& parameter = flat.parameters()[i];
        expect_close(parameter.tensor.detach(), values[i],
                     std::max(1.0, values[i].abs().max().item<double>()));
        expect_close(state_of(*optimizer, parameter.name + ".exp_avg"), averages[i], 4);
        EXPECT_LE(ulps_apart(state_of(*optimizer, parameter.name + ".exp_avg_sq"), squares[i]), 2);
      }
    }
  }
}

TEST_P(OneStep, OfSgdAgreesWithLibTorchsFusedKernel) {
  for (const bool nesterov : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      if (nesterov && momentum == 0) continue;
      const double dampening = nesterov || momentum == 0 ? 0 : 0.1;
      SGD optimizer(flat, {.lr = 0.1,
                           .momentum = momentum,
                           .dampening = dampening,
                           .weight_decay = 0.01,
                           .nesterov = nesterov});
      give_gradients(net, 8);
      Tensors values, gradients, momenta;
      for (auto& parameter : flat.parameters()) {
        values.push_back(parameter.tensor.detach().clone());
        gradients.push_back(parameter.tensor.grad().clone());
        if (momentum == 0) continue;
        state_of(optimizer, parameter.name + ".momentum_buffer").normal_();
        state_of(optimizer, parameter.name + ".step").fill_(GetParam() - 1);
        momenta.push_back(state_of(optimizer, parameter.name + ".momentum_buffer").clone());
      }
      optimizer.step();
      at::_fused_sgd_(values, gradients, momenta, 0.01, momentum, 0.1, dampening, nesterov, false,
                      /*is_first_step=*/GetParam() == 1);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto& parameter = flat.parameters()[i];
        expect_close(parameter.tensor.detach(), values[i],
                     std::max(1.0, values[i].abs().max().item<double>()));
        if (momentum == 0) continue;
        expect_close(state_of(optimizer, parameter.name + ".momentum_buffer"), momenta[i], 4);
      }
    }
  }
}

// 30 steps in which some parameters have no gradient, compared with torch::optim.
void expect_same_course(
    torch::nn::Sequential& net, FlatOptimizer& ours,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(Tensors)>& make) {
  auto other = make_net();
  const auto theirs = make(other->parameters());
  for (std::uint64_t step = 0; step < 30; ++step) {
    give_gradients(net, step);
    give_gradients(other, step);
    if (step % 3 == 1) {  // no gradient for the second layer in this step
      for (std::size_t i = 2; i < 4; ++i) {
        net->parameters()[i].mutable_grad() = at::Tensor();
        other->parameters()[i].mutable_grad() = at::Tensor();
      }
    }
    ours.step();
    theirs->step();
  }
  for (std::size_t i = 0; i < 4; ++i) {
    // The rounding errors of thirty steps, of values of about 1.
    EXPECT_LE((net->parameters()[i] - other->parameters()[i]).abs().max().item<double>(), 2e-6)
        << i;
  }
}

TEST_F(Optimizers, AgreeWithTorchOptimWhenGradientsAreMissing) {
  AdamW adamw(flat, {.lr = 1e-2, .weight_decay = 0.1});
  expect_same_course(net, adamw, [](Tensors parameters) {
    return std::make_unique<torch::optim::AdamW>(
        parameters, torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  });
  EXPECT_EQ(state_of(adamw, "0.weight.step").item<std::int64_t>(), 30);
  EXPECT_EQ(state_of(adamw, "2.weight.step").item<std::int64_t>(), 20);
}

TEST_F(Optimizers, AgreeWithTorchOptimsAdam) {
  Adam adam(flat, {.lr = 1e-2, .weight_decay = 0.1});
  expect_same_course(net, adam, [](Tensors parameters) {
    return std::make_unique<torch::optim::Adam>(parameters,
                                                torch::optim::AdamOptions(1e-2).weight_decay(0.1));
  });
}

TEST_F(Optimizers, AgreeWithTorchOptimsSgd) {
  SGD sgd(flat, {.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
  expect_same_course(net, sgd, [](Tensors parameters) {
    return std::make_unique<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(1e-2).momentum(0.9).weight_decay(0.1).nesterov(true));
  });
}

TEST_F(Optimizers, ApplyTheOptionsOfGroups) {
  SGD optimizer(flat,
                {.lr = 1,
                 .weight_decay = 0.5,
                 .groups = {no_decay_for_biases_and_norms(),
                            {.matches = named("2."), .lr_factor = 0.25, .weight_decay = 2.0}}});
  Tensors before;
  for (auto& parameter : net->parameters()) {
    before.push_back(parameter.detach().clone());
    parameter.mutable_grad() = torch::zeros_like(parameter);
  }
  optimizer.step(0.5);
  const auto after = net->parameters();
  EXPECT_TRUE(after[0].equal(before[0] - before[0] * 0.5F * 0.5F));
  EXPECT_TRUE(after[1].equal(before[1])) << "a bias has decayed";
  EXPECT_TRUE(after[2].equal(before[2] - before[2] * 2.F * 0.125F));
  EXPECT_TRUE(after[3].equal(before[3])) << "the first group that matches wins";
}

TEST_F(Optimizers, UseTheLrThatWasSet) {
  auto other = make_net();
  FlatParameters of_other(*other, group);
  AdamW set(flat, {.lr = 0.5});
  AdamW given(of_other, {.lr = 0.5});
  for (std::uint64_t step = 0; step < 3; ++step) {
    give_gradients(net, step);
    give_gradients(other, step);
    const double lr = 0.1 / static_cast<double>(1 + step);
    set.set_lr(lr);
    set.step();
    given.step(lr);
    EXPECT_TRUE(flat.values(0).equal(of_other.values(0)));
  }
  EXPECT_THROW(set.set_lr(-1), UsageError);
}

TEST_F(Optimizers, MakeNoStepWhereTheFlagIsSet) {
  AdamW optimizer(flat);
  give_gradients(net, 1);
  const auto before = flat.values(0).clone();
  optimizer.step_unless(torch::ones({}, at::kInt));
  optimizer.step_unless(torch::ones({}, at::kInt), 0.1);
  EXPECT_TRUE(flat.values(0).equal(before));
  EXPECT_EQ(state_of(optimizer, "0.weight.step").item<std::int64_t>(), 0);
  optimizer.step_unless(torch::zeros({}, at::kInt), 0.1);
  EXPECT_FALSE(flat.values(0).equal(before));
  EXPECT_EQ(state_of(optimizer, "0.weight.step").item<std::int64_t>(), 1);
}

TEST_F(Optimizers, KeepPaddingZero) {
  AdamW optimizer(flat, {.lr = 0.1});
  for (std::uint64_t step = 0; step < 3; ++step) {
    give_gradients(net, step);
    optimizer.step();
  }
  auto padding = flat.values(0).clone();
  for (const auto& parameter : flat.parameters()) {
    padding.narrow(0, parameter.slot.begin, parameter.slot.count).zero_();
  }
  EXPECT_GT(padding.numel(), 0);
  EXPECT_EQ(padding.count_nonzero().item<std::int64_t>(), 0);
}

TEST_F(Optimizers, ResumeBitIdenticallyFromTheirTensors) {
  const auto run = [](torch::nn::Sequential& model, FlatOptimizer& optimizer, std::uint64_t begin,
                      std::uint64_t end) {
    for (auto step = begin; step < end; ++step) {
      give_gradients(model, step);
      optimizer.step();
      optimizer.zero_grad();
    }
  };
  AdamW unbroken(flat, {.lr = 0.1});
  run(net, unbroken, 0, 9);

  auto first = make_net();
  FlatParameters first_flat(*first, group);
  AdamW before(first_flat, {.lr = 0.1});
  run(first, before, 0, 4);
  auto second = make_net();
  FlatParameters second_flat(*second, group);
  AdamW after(second_flat, {.lr = 0.1});
  {
    const torch::NoGradGuard off;
    for (std::size_t i = 0; i < 4; ++i) second->parameters()[i].copy_(first->parameters()[i]);
    auto saved = before.named_tensors();
    auto loaded = after.named_tensors();
    ASSERT_EQ(saved.size(), 4U * 3U);
    for (std::size_t i = 0; i < saved.size(); ++i) {
      EXPECT_EQ(saved[i].first, loaded[i].first);
      loaded[i].second.copy_(saved[i].second);
    }
    after.load_state_json(before.state_json());
  }
  run(second, after, 4, 9);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(second->parameters()[i].equal(net->parameters()[i])) << i;
  }
  EXPECT_THROW(SGD(second_flat).load_state_json(before.state_json()), UsageError);
  EXPECT_THROW(after.load_state_json("[]"), UsageError);
}

TEST_F(Optimizers, ComputeBfloat16InFloatAndRoundOnce) {
  auto half = make_net(at::kBFloat16);
  FlatParameters half_flat(*half, group);
  auto full = make_net();
  {
    const torch::NoGradGuard off;
    for (std::size_t i = 0; i < 4; ++i) full->parameters()[i].copy_(half->parameters()[i]);
  }
  FlatParameters full_flat(*full, group);
  AdamW half_optimizer(half_flat, {.lr = 1e-3});
  AdamW full_optimizer(full_flat, {.lr = 1e-3});
  const auto step_both = [&](std::uint64_t step) {
    give_gradients(half, step);
    for (std::size_t i = 0; i < 4; ++i) {
      full->parameters()[i].mutable_grad() = half->parameters()[i].grad().to(at::kFloat);
    }
    half_optimizer.step();
    full_optimizer.step();
  };
  const auto expect_equal = [&] {
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(half->parameters()[i].equal(full->parameters()[i].to(at::kBFloat16))) << i;
      const auto name = half_flat.parameters()[i].name + ".master";
      EXPECT_TRUE(state_of(half_optimizer, name).equal(full->parameters()[i])) << i;
    }
  };
  for (std::uint64_t step = 0; step < 20; ++step) step_both(step);
  expect_equal();
  {
    // The program loads other weights: they count, not the masters of the old ones.
    const torch::NoGradGuard off;
    for (std::size_t i = 0; i < 4; ++i) {
      half->parameters()[i].fill_(0.5);
      full->parameters()[i].fill_(0.5);
    }
  }
  step_both(99);
  expect_equal();
}

TEST_F(Optimizers, TrainDoublesInDouble) {
  auto wide = make_net(at::kDouble);
  FlatParameters wide_flat(*wide, group);
  auto other = make_net(at::kDouble);
  AdamW ours(wide_flat, {.lr = 1e-2});
  torch::optim::AdamW theirs(other->parameters(), torch::optim::AdamWOptions(1e-2));
  for (std::uint64_t step = 0; step < 10; ++step) {
    give_gradients(wide, step);
    give_gradients(other, step);
    ours.step();
    theirs.step();
  }
  EXPECT_LE((wide->parameters()[0] - other->parameters()[0]).abs().max().item<double>(), 1e-14);
}

TEST_F(Optimizers, BumpVersionCountersOfParameters) {
  AdamW optimizer(flat);
  const auto loss = net->forward(torch::randn({2, 37})).square().sum();
  give_gradients(net, 1);
  optimizer.step();
  EXPECT_THROW(loss.backward(), c10::Error);
  optimizer.zero_grad();
  for (auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST_F(Optimizers, NameParametersThatLeftRegisteredMemory) {
  AdamW optimizer(flat);
  give_gradients(net, 1);
  net->parameters()[2].set_data(torch::zeros({11, 19}));
  try {
    optimizer.step();
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("2.weight"), std::string::npos) << error.what();
  }
}

TEST_F(Optimizers, RefuseOptionsOutOfRange) {
  EXPECT_THROW(AdamW(flat, {.betas = {1, 0.999}}), UsageError);
  EXPECT_THROW(AdamW(flat, {.betas = {0.9, 1}}), UsageError);
  EXPECT_THROW(AdamW(flat, {.eps = 0}), UsageError);
  EXPECT_THROW(Adam(flat, {.weight_decay = -1}), UsageError);
  EXPECT_THROW(SGD(flat, {.nesterov = true}), UsageError);
  EXPECT_THROW(SGD(flat, {.lr = std::nan("")}), UsageError);
  AdamW fine(flat);
  EXPECT_THROW(fine.step(-1), UsageError);
  auto half = make_net(at::kHalf);
  FlatParameters half_flat(*half, group);
  EXPECT_THROW(AdamW{half_flat}, UsageError);
}

}  // namespace
}  // namespace lockstep
