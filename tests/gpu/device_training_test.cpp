// Ddp, optimizers and clipping on CUDA parameters. Everything that lockstep computes itself is
// bit-identical to the same on the CPU; LibTorch's own kernels are not, so gradients are assigned.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/collectives/test_groups_internal.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(31, 67), torch::nn::Tanh(),
                               torch::nn::Linear(67, 300), torch::nn::Linear(300, 5));
}

struct ReadGradient final : torch::autograd::PostAccumulateGradHook {
  explicit ReadGradient(std::function<void(const at::Tensor&)> the_read)
      : read(std::move(the_read)) {}
  void operator()(const at::Tensor& parameter) override { read(parameter); }
  std::function<void(const at::Tensor&)> read;
};

class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine";
  }

  const at::Device gpu{at::kCUDA, 0};
};

// The same model twice: on the CPU and on the GPU.
struct Twins {
  explicit Twins(at::Device gpu, at::ScalarType dtype = at::kFloat)
      : host_net(make_net()), device_net(make_net()) {
    host_net->to(dtype);
    device_net->to(gpu, dtype);
    host.emplace(*host_net, group);
    device.emplace(*device_net, group);
  }

  // The same gradients for both, drawn on the CPU; none for the parameter `without`.
  void give_gradients(std::uint64_t seed, std::size_t without = 1000) {
    torch::manual_seed(seed);
    for (std::size_t i = 0; i < host_net->parameters().size(); ++i) {
      auto on_host = host_net->parameters()[i];
      auto on_device = device_net->parameters()[i];
      const auto gradient = torch::randn_like(on_host);
      on_host.mutable_grad() = i == without ? at::Tensor() : gradient;
      on_device.mutable_grad() = i == without ? at::Tensor() : gradient.to(on_device.device());
    }
  }

  void expect_equal(const std::string& what) const {
    for (std::size_t i = 0; i < host_net->parameters().size(); ++i) {
      const auto on_host = host_net->parameters()[i];
      const auto on_device = device_net->parameters()[i];
      EXPECT_TRUE(on_host.equal(on_device.cpu())) << what << ", values of parameter " << i;
      if (!on_host.grad().defined()) continue;
      EXPECT_TRUE(on_host.grad().equal(on_device.grad().cpu())) << what << ", gradient " << i;
    }
  }

  ProcessGroup group{World::alone()};
  torch::nn::Sequential host_net, device_net;
  std::optional<FlatParameters> host, device;
};

template <typename Optimizer, typename Options>
void compare_steps(at::Device gpu, at::ScalarType dtype, const Options& options,
                   const std::string& what) {
  Twins twins(gpu, dtype);
  Optimizer on_host(*twins.host, options);
  Optimizer on_device(*twins.device, options);
  for (std::uint64_t step = 0; step < 4; ++step) {
    // In one step a parameter has no gradient: ranges and step counts then differ.
    twins.give_gradients(step, step == 1 ? 2 : 1000);
    const double norm = clip_grad_norm(*twins.host, 2.0);
    EXPECT_EQ(clip_grad_norm(*twins.device, 2.0), norm) << what;
    on_host.step();
    on_device.step();
    twins.expect_equal(what);
  }
  const auto host_state = on_host.named_tensors();
  const auto device_state = on_device.named_tensors();
  for (std::size_t i = 0; i < host_state.size(); ++i) {
    EXPECT_TRUE(host_state[i].second.equal(device_state[i].second.cpu()))
        << what << ", " << host_state[i].first;
  }
}

TEST_F(OnDevice, OptimizersAndClippingHaveTheBitsOfTheCpu) {
  const std::vector<ParameterGroup> groups{no_decay_for_biases_and_norms()};
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    compare_steps<AdamW>(gpu, dtype, AdamWOptions{.lr = 0.01, .groups = groups}, "AdamW");
    compare_steps<Adam>(gpu, dtype, AdamOptions{.lr = 0.01, .weight_decay = 0.1}, "Adam");
    compare_steps<SGD>(gpu, dtype, SGDOptions{.lr = 0.1, .momentum = 0.9, .groups = groups}, "SGD");
    compare_steps<SGD>(gpu, dtype, SGDOptions{.lr = 0.1}, "SGD without momentum");
  }
}

TEST_F(OnDevice, GradientsOfDdpAreThoseOfAutograd) {
  auto plain = make_net();
  auto net = make_net();
  plain->to(gpu);
  net->to(gpu);
  const ProcessGroup group(World::alone());
  Ddp ddp(*net, group);
  for (int step = 0; step < 3; ++step) {
    const auto input = torch::randn({16, 31}, gpu);
    plain->forward(input).square().sum().backward();
    net->forward(input).square().sum().backward();
    EXPECT_TRUE(ddp.should_step());
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      EXPECT_TRUE(net->parameters()[i].grad().equal(plain->parameters()[i].grad())) << i;
    }
    plain->zero_grad();
    net->zero_grad();
  }
}

TEST_F(OnDevice, AccumulatedAndCountedGradientsAreDividedOnce) {
  for (const auto normalize : {Normalize::by_rank, Normalize::by_count}) {
    const bool by_count = normalize == Normalize::by_count;
    auto plain = make_net();
    auto net = make_net();
    plain->to(gpu);
    net->to(gpu);
    const ProcessGroup group(World::alone());
    Ddp ddp(*net, group, {.normalize = normalize, .accumulate = 2});
    const auto input = torch::randn({2, 6, 31}, gpu);
    for (int i = 0; i < 2; ++i) {
      plain->forward(input[i]).square().sum().backward();
      if (by_count) ddp.count(3);
      net->forward(input[i]).square().sum().backward();
      EXPECT_EQ(ddp.should_step(), i == 1);
    }
    const auto divisor = torch::full({}, by_count ? 6.0F : 2.0F, gpu);
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      const auto expected = plain->parameters()[i].grad() / divisor;
      EXPECT_TRUE(net->parameters()[i].grad().equal(expected)) << i;
    }
  }
}

TEST_F(OnDevice, NonFiniteGradientsAreFoundAndNamed) {
  auto net = make_net();
  net->to(gpu);
  const ProcessGroup group(World::alone());
  Ddp ddp(*net, group);
  net->forward(torch::randn({4, 31}, gpu)).sum().backward();
  EXPECT_FALSE(ddp.non_finite());
  net->zero_grad();
  auto loss = net->forward(torch::randn({4, 31}, gpu)).sum();
  (loss * std::numeric_limits<float>::infinity()).backward();
  EXPECT_TRUE(ddp.non_finite());
  EXPECT_FALSE(ddp.non_finite_parameters().empty());
}

// Autograd's thread of the device may hold the graph a moment longer than the caller of backward().
TEST_F(OnDevice, AFailedBackwardIsOverBeforeTheNextFunctionOfTheDdp) {
  auto net = make_net();
  net->to(gpu);
  const ProcessGroup group(World::alone());
  Ddp ddp(*net, group);
  const auto input = torch::randn({4, 31}, gpu);
  net->forward(input).sum().backward();
  const auto expected = net->parameters()[0].grad().clone();
  for (int i = 0; i < 300; ++i) {
    net->zero_grad();
    const auto hidden = net->forward(input * 1);
    hidden.register_hook([i](const at::Tensor& gradient) {
      if (i % 2 == 0) throw std::runtime_error("not this one");
      return gradient;
    });
    if (i % 2 == 0) {
      EXPECT_THROW((hidden + net->parameters()[5]).sum().backward(), std::runtime_error);
      net->zero_grad();
      EXPECT_NO_THROW(ddp.sit_out());
      EXPECT_FALSE(ddp.should_step());
    } else {
      hidden.sum().backward();
      EXPECT_TRUE(net->parameters()[0].grad().equal(expected));
    }
  }
}

TEST_F(OnDevice, GradientsReachAHookThatReadsThem) {
  auto net = make_net();
  net->to(gpu);
  const ProcessGroup group(World::alone());
  FlatParameters flat(*net, group);
  const auto input = torch::randn({4, 31}, gpu);
  net->forward(input).sum().backward();
  const auto expected = net->parameters()[0].grad().clone();
  net->zero_grad();
  at::Tensor seen;
  torch::autograd::impl::set_post_acc_grad_hooks(
      net->parameters()[0], std::make_unique<ReadGradient>([&](const at::Tensor& parameter) {
        seen = parameter.grad().clone();
      }));
  net->forward(input).sum().backward();
  EXPECT_TRUE(seen.equal(expected));
  torch::autograd::impl::post_acc_grad_hooks(net->parameters()[0]).reset();
}

TEST_F(OnDevice, CollectivesOfOneRankLeaveTheTensorOnItsDevice) {
  const ProcessGroup group(World::alone());
  auto tensor = torch::arange(5, torch::dtype(torch::kFloat).device(gpu));
  const auto before = tensor.clone();
  group.all_reduce(tensor, ReduceOp::average).synchronize();
  EXPECT_TRUE(tensor.equal(before));
  auto gathered = torch::zeros({5}, gpu);
  group.all_gather(gathered, tensor).wait();
  EXPECT_TRUE(gathered.equal(before));
  group.all_reduce(tensor, ReduceOp::weighted_average, {.weight = 3}).wait();
  EXPECT_TRUE(tensor.equal(before / torch::full({}, 3.0F, gpu)));
  EXPECT_TRUE(group.allocate(64, gpu).is_cuda());
}

}  // namespace
}  // namespace lockstep
