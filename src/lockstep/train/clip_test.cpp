#include "lockstep/train/clip.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(7, 5), torch::nn::Tanh(), torch::nn::Linear(5, 3));
}

void give_gradients(torch::nn::Sequential& net, double factor = 1) {
  for (auto& parameter : net->parameters()) {
    parameter.mutable_grad() = factor * torch::randn_like(parameter);
  }
}

class Clip : public ::testing::Test {
 protected:
  ProcessGroup group{World::alone()};
  torch::nn::Sequential net = make_net();
  FlatParameters flat{*net, group};
};

TEST_F(Clip, AgreesWithLibTorch) {
  for (const double factor : {100.0, 1.0, 0.001}) {
    torch::manual_seed(4);
    give_gradients(net, factor);
    auto other = make_net();
    torch::manual_seed(4);
    give_gradients(other, factor);
    const double expected = torch::nn::utils::clip_grad_norm_(other->parameters(), 0.5);
    // LibTorch sums in float, we in double: they agree within a few units in the last place of
    // float.
    EXPECT_NEAR(clip_grad_norm(flat, 0.5), expected, 1e-6 * expected);
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), other->parameters()[i].grad(),
                                  /*rtol=*/1e-6, /*atol=*/0));
    }
  }
}

TEST_F(Clip, DoesNotChangeGradientsBelowTheNorm) {
  give_gradients(net);
  const auto before = net->parameters()[0].grad().clone();
  const double norm = clip_grad_norm(flat, 1e9);
  EXPECT_TRUE(net->parameters()[0].grad().equal(before));
  EXPECT_DOUBLE_EQ(norm, grad_norm(flat));
  EXPECT_EQ(clip_grad_norm(flat, 0), norm);
  EXPECT_EQ(grad_norm(flat), 0);
}

TEST_F(Clip, CountsOnlyParametersThatHaveAGradient) {
  give_gradients(net);
  net->parameters()[1].mutable_grad() = at::Tensor();
  double sum = 0;
  for (const auto& parameter : net->parameters()) {
    if (parameter.grad().defined()) {
      sum += parameter.grad().to(torch::kDouble).square().sum().item<double>();
    }
  }
  EXPECT_NEAR(clip_grad_norm(flat, 1), std::sqrt(sum), 1e-12 * sum);
  EXPECT_FALSE(net->parameters()[1].grad().defined());
}

// The order of additions depends on the layout alone (flat/norm_grid_test.cpp has the oracle).
TEST_F(Clip, NormIsBitIdenticalWhicheverOtherParametersHaveAGradient) {
  give_gradients(net);
  net->parameters()[1].mutable_grad().zero_();
  const double with_zeros = grad_norm(flat);
  net->parameters()[1].mutable_grad() = at::Tensor();
  EXPECT_EQ(grad_norm(flat), with_zeros);
}

TEST_F(Clip, NamesNonFiniteGradientsOnRequest) {
  give_gradients(net);
  net->parameters()[2].mutable_grad()[1][1] = std::numeric_limits<float>::infinity();
  const auto before = net->parameters()[0].grad().clone();
  try {
    clip_grad_norm(flat, 1, {.error_if_non_finite = true});
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("is inf, because of 2.weight"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(net->parameters()[0].grad().equal(before)) << "gradients were changed";
  EXPECT_EQ(clip_grad_norm(flat, 1), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(net->parameters()[2].grad()[1][1].isnan().item<bool>()) << "inf × 0, as in PyTorch";
  EXPECT_THROW(clip_grad_norm(flat, -1), UsageError);
}

TEST_F(Clip, KeepsPaddingZeroWhateverTheNorm) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    give_gradients(net);
    net->parameters()[0].mutable_grad()[0][0] = bad;
    clip_grad_norm(flat, 1);
    EXPECT_TRUE(net->parameters()[1].grad().isnan().all().item<bool>() || std::isinf(bad));
    auto rest = flat.gradients(0).clone();
    for (const auto& parameter : flat.parameters()) {
      rest.narrow(0, parameter.slot.begin, parameter.slot.count).zero_();
    }
    EXPECT_EQ(rest.count_nonzero().item<std::int64_t>(), 0);
  }
  give_gradients(net);
  EXPECT_TRUE(std::isfinite(grad_norm(flat))) << "an earlier non-finite step has left a trace";
}

TEST_F(Clip, NamesParametersThatLeftRegisteredMemory) {
  give_gradients(net);
  net->to(torch::kDouble);
  EXPECT_THROW(clip_grad_norm(flat, 1), UsageError);
}

TEST(ClipOnRanks, IsBitIdenticalOnAllRanks) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(3, [&](testing::Rank& self) {
    ProcessGroup group(point.join(self.rank(), self.size()));
    torch::nn::Sequential net(torch::nn::Linear(7, 5), torch::nn::Linear(5, 3));
    FlatParameters flat(*net, group);
    auto generator = at::make_generator<at::CPUGeneratorImpl>(self.rank() + 1);
    for (auto& parameter : net->parameters()) {
      parameter.mutable_grad() = torch::randn(parameter.sizes(), generator);
      group.all_reduce(parameter.mutable_grad(), ReduceOp::average).wait();
    }
    auto norms = torch::zeros({3}, torch::kDouble);
    group.all_gather(norms, torch::full({1}, clip_grad_norm(flat, 0.1).item(), torch::kDouble))
        .wait();
    EXPECT_TRUE(norms.equal(norms[0].expand_as(norms)));
    auto all = torch::zeros({3, 35});
    group.all_gather(all, net->parameters()[0].grad().flatten()).wait();
    EXPECT_TRUE(all.equal(all[0].expand_as(all)));
    EXPECT_NEAR(grad_norm(flat), 0.1, 1e-6);
  });
}

}  // namespace
}  // namespace lockstep
