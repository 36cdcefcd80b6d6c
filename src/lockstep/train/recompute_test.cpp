#include "lockstep/train/recompute.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/train/autocast.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

// A block with all critical features: dropout, batch statistics, a tied weight.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width = 16, double dropout = 0.3)
      : up(register_module("up", torch::nn::Linear(width, 2 * width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(2 * width))),
        down(register_module("down", torch::nn::Linear(2 * width, width))),
        drop(register_module("drop", torch::nn::Dropout(dropout))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto inside = drop(torch::gelu(norm(up(x))));
    return x + down(inside) + torch::mm(inside, up->weight);  // uses up's weight a second time
  }

  torch::nn::Linear up;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear down;
  torch::nn::Dropout drop;
};
TORCH_MODULE(Block);

// Three blocks, each run by `call`. The result must not depend on `call`.
struct Outcome {
  at::Tensor loss;
  Tensors gradients;
  Tensors buffers;
  at::Tensor next_random;
};

using Call = std::function<at::Tensor(Block&, const at::Tensor&)>;

at::Tensor plainly(Block& block, const at::Tensor& x) { return block(x); }
at::Tensor again(Block& block, const at::Tensor& x) { return recompute(block, x); }

Outcome train(
    const Call& call, const std::function<at::Tensor(const std::function<at::Tensor()>&)>& around =
                          [](const auto& forward) { return forward(); }) {
  torch::manual_seed(5);
  std::vector<Block> blocks{Block(), Block(), Block()};
  auto input = torch::randn({8, 16}, torch::requires_grad());
  Outcome outcome;
  outcome.loss = around([&] {
    auto x = input;
    for (auto& block : blocks) x = call(block, x);
    return x.to(torch::kFloat).square().mean();
  });
  outcome.loss.backward();
  outcome.gradients.push_back(input.grad());
  for (auto& block : blocks) {
    for (auto& parameter : block->parameters()) outcome.gradients.push_back(parameter.grad());
    for (auto& buffer : block->buffers()) outcome.buffers.push_back(buffer.clone());
  }
  outcome.next_random = torch::rand({4});
  return outcome;
}

void expect_equal(const Outcome& actual, const Outcome& expected) {
  EXPECT_TRUE(actual.loss.equal(expected.loss));
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (std::size_t i = 0; i < actual.gradients.size(); ++i) {
    ASSERT_TRUE(actual.gradients[i].defined()) << "gradient " << i << " is lost";
    EXPECT_TRUE(actual.gradients[i].equal(expected.gradients[i])) << "gradient " << i;
  }
  for (std::size_t i = 0; i < actual.buffers.size(); ++i) {
    EXPECT_TRUE(actual.buffers[i].equal(expected.buffers[i])) << "buffer " << i;
  }
  EXPECT_TRUE(actual.next_random.equal(expected.next_random)) << "the generator's state differs";
}

TEST(Recompute, IsBitIdenticalWithDropoutStatisticsAndTiedWeights) {
  expect_equal(train(again), train(plainly));
}

TEST(Recompute, IsBitIdenticalUnderAutocast) {
  const auto forward_alone = [](const auto& forward) {
    const Autocast lower(at::kBFloat16);
    return forward();
  };
  expect_equal(train(again, forward_alone), train(plainly, forward_alone));
}

TEST(Recompute, IsBitIdenticalWithBackwardInsideTheAutocastScope) {
  const auto plain = [](const auto& forward) {
    const Autocast lower(at::kBFloat16);
    return forward();
  };
  Outcome inside;
  {
    const Autocast lower(at::kBFloat16);
    inside = train(again);
  }
  const auto outside = train(plainly, plain);
  EXPECT_TRUE(inside.loss.equal(outside.loss));
  for (std::size_t i = 0; i < inside.gradients.size(); ++i) {
    EXPECT_TRUE(inside.gradients[i].equal(outside.gradients[i])) << i;
  }
}

TEST(Recompute, NestsToAnyDepth) {
  const Call nested = [](Block& block, const at::Tensor& x) {
    const BlockState state{block->parameters(), block->buffers()};
    const BlockForward inner = [block, state](const Tensors& in) mutable {
      const BlockForward innermost = [block](const Tensors& inputs) mutable {
        return Tensors{block->forward(inputs[0])};
      };
      return recompute(innermost, state, in);
    };
    return recompute(inner, state, {x}).front();
  };
  expect_equal(train(nested), train(plainly));
}

TEST(Recompute, RunsParameterHooksOnceInTheOuterGraph) {
  Block block;
  int calls = 0;
  bool nested = false;
  block->up->weight.register_hook([&](const at::Tensor& gradient) {
    ++calls;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [&] { nested = torch::autograd::get_current_node() != nullptr; });
    return 2 * gradient;
  });
  const auto input = torch::randn({8, 16});
  torch::manual_seed(6);
  block(input).sum().backward();
  const auto expected = block->up->weight.grad().clone();
  block->zero_grad();
  calls = 0;
  torch::manual_seed(6);
  recompute(block, input).sum().backward();
  EXPECT_EQ(calls, 1) << "a tied weight is one parameter";
  EXPECT_TRUE(block->up->weight.grad().equal(expected));
  EXPECT_FALSE(nested) << "the callback ran at the end of the inner backward";
}

TEST(Recompute, FillsFlatBuffers) {
  torch::manual_seed(5);
  Block plain;
  torch::manual_seed(5);
  Block block;
  ProcessGroup group(World::alone());
  FlatParameters flat(*block, group);
  const auto input = torch::randn({8, 16});
  torch::manual_seed(6);
  plain(input).sum().backward();
  torch::manual_seed(6);
  recompute(block, input).sum().backward();
  for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
    EXPECT_TRUE(block->parameters()[i].grad().equal(plain->parameters()[i].grad())) << i;
    EXPECT_TRUE(flat.slots().is_bound(static_cast<int>(i))) << i;
  }
}

TEST(Recompute, TakesSeveralInputsAndOutputsOfAnyKind) {
  auto a = torch::randn({4}, torch::requires_grad());
  auto b = torch::randn({4}, torch::requires_grad());
  const auto which = torch::tensor({3, 1});
  const BlockForward forward = [](const Tensors& in) {
    return Tensors{in[0] * in[1], in[0].index_select(0, in[2]), in[0].argmax(), in[1].detach()};
  };
  const auto run = [&](bool twice) {
    const Tensors inputs{a, b, which};
    const auto out = twice ? recompute(forward, {}, inputs) : forward(inputs);
    EXPECT_EQ(out[2].scalar_type(), at::kLong);
    EXPECT_FALSE(out[2].requires_grad());
    return torch::autograd::grad({out[0].sum() + out[1].square().sum()}, {a, b});
  };
  const auto expected = run(false);
  const auto actual = run(true);
  EXPECT_TRUE(actual[0].equal(expected[0]));
  EXPECT_TRUE(actual[1].equal(expected[1]));
  // One tensor as two inputs gets the sum of both gradients.
  const auto twice = recompute(forward, {}, {a, a, which});
  const auto gradient = torch::autograd::grad({twice[0].sum()}, {a})[0];
  EXPECT_TRUE(gradient.equal(2 * a));
}

TEST(Recompute, DifferentiatesTwice) {
  torch::nn::Linear layer(4, 4);
  const auto penalty = [&](bool twice) {
    auto x = torch::linspace(-1, 1, 8).view({2, 4}).set_requires_grad(true);
    const BlockForward forward = [layer](const Tensors& in) mutable {
      return Tensors{torch::tanh(layer(in[0])).square()};
    };
    const auto y = twice ? recompute(forward, {layer->parameters(), {}}, {x}) : forward({x});
    const auto gradient = torch::autograd::grad({y[0].sum()}, {x}, {}, true, true)[0];
    layer->zero_grad();
    gradient.square().sum().backward();
    return Tensors{layer->weight.grad().clone(), x.grad()};
  };
  const auto expected = penalty(false);
  const auto actual = penalty(true);
  EXPECT_TRUE(torch::allclose(actual[0], expected[0]));
  EXPECT_TRUE(torch::allclose(actual[1], expected[1]));
}

TEST(Recompute, SeesTheBuffersOfTheFirstForward) {
  // A block with a counter on which its output depends.
  auto count = torch::zeros({1});
  auto x = torch::ones({1}, torch::requires_grad());
  const BlockForward forward = [count](const Tensors& in) mutable {
    const torch::NoGradGuard off;
    count += 1;
    const at::AutoGradMode on(true);
    return Tensors{in[0] * count.clone()};
  };
  const auto first = recompute(forward, {{}, {count}}, {x})[0];
  const auto second = recompute(forward, {{}, {count}}, {x})[0];
  (first + 10 * second).backward();
  EXPECT_EQ(x.grad().item<float>(), 1 + 10 * 2);
  EXPECT_EQ(count.item<float>(), 2);
}

TEST(Recompute, RunsOnceWithoutGradients) {
  int runs = 0;
  const BlockForward forward = [&](const Tensors& in) {
    ++runs;
    return Tensors{in[0] * 2};
  };
  EXPECT_FALSE(recompute(forward, {}, {torch::ones({1})})[0].requires_grad());
  const torch::NoGradGuard off;
  EXPECT_FALSE(
      recompute(forward, {}, {torch::ones({1}, torch::requires_grad())})[0].requires_grad());
  EXPECT_EQ(runs, 2);
}

TEST(Recompute, ReportsBlocksThatWouldGiveWrongGradients) {
  auto x = torch::ones({2}, torch::requires_grad()) * 1;
  const BlockForward in_place = [](const Tensors& in) {
    auto changed = in[0].detach();
    changed.add_(1);
    return Tensors{in[0] * 2};
  };
  EXPECT_THROW((void)recompute(in_place, {}, {x}), UsageError);

  auto hidden = torch::ones({2}, torch::requires_grad());
  const BlockForward captures = [hidden](const Tensors& in) { return Tensors{in[0] * hidden}; };
  const auto y = recompute(captures, {}, {x})[0];
  EXPECT_THROW(y.sum().backward(), UsageError);
  const auto handed_over = recompute(captures, {{hidden}, {}}, {x})[0];
  handed_over.sum().backward();
  EXPECT_TRUE(hidden.grad().equal(x));

  torch::nn::Linear layer(2, 2);
  const auto stale = recompute(layer, x);
  {
    const torch::NoGradGuard off;
    layer->weight += 1;
  }
  EXPECT_THROW(stale.sum().backward(), c10::Error) << "a changed weight was used";
}

TEST(Recompute, NamesAParameterThatWasUnfrozenBetweenForwardAndBackward) {
  torch::nn::Linear block(3, 2);
  block->weight.requires_grad_(false);
  const auto y = recompute(block, torch::ones({1, 3}, torch::requires_grad()));
  block->weight.requires_grad_(true);
  try {
    y.sum().backward();
    ADD_FAILURE() << "the gradient of the weight is lost";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("a parameter [2, 3]"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("unfrozen before backward()"), std::string::npos);
  }
}

TEST(Recompute, RestoresAllStateWhenTheSecondForwardThrows) {
  int runs = 0;
  auto count = torch::zeros({1});
  const BlockForward forward = [&runs, count](const Tensors& in) mutable {
    {
      const torch::NoGradGuard off;
      count += 1;
    }
    if (++runs == 2) throw UsageError("on purpose");
    return Tensors{torch::dropout(in[0], 0.5, true)};
  };
  const auto y = recompute(forward, {{}, {count}}, {torch::ones({4}, torch::requires_grad())})[0];
  auto generator = at::detail::getDefaultCPUGenerator();
  const auto state = generator.get_state();
  EXPECT_THROW(y.sum().backward(), UsageError);
  EXPECT_TRUE(generator.get_state().equal(state));
  EXPECT_EQ(count.item<float>(), 1);
  EXPECT_FALSE(autocast_state(at::kCPU).enabled);
}

}  // namespace
}  // namespace lockstep
