#include "lockstep/train/unit.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct LayerImpl : torch::nn::Module, Unit {
  LayerImpl() : linear(register_module("linear", torch::nn::Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& x, double factor = 1,
                     const std::optional<at::Tensor>& shift = {}) {
    ++runs;
    const auto y = torch::tanh(linear(x)) * factor;
    return shift ? y + *shift : y;
  }
  torch::nn::Linear linear;
  int runs = 0;
};
TORCH_MODULE(Layer);

struct ModelImpl : torch::nn::Module {
  ModelImpl() {
    for (int i = 0; i < 5; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), Layer()));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = unit(layer)(x, 0.5);
    return x;
  }
  std::vector<Layer> layers;
};
TORCH_MODULE(Model);

std::vector<at::Tensor> gradients_of(Model& model) {
  model->zero_grad();
  torch::manual_seed(2);
  model(torch::randn({3, 4})).sum().backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

TEST(Unit, RunsTheBlockDirectlyWithoutWrappers) {
  Model model;
  const auto x = torch::randn({3, 4});
  EXPECT_TRUE(unit(model->layers[0])(x).equal(model->layers[0](x)));
  (void)gradients_of(model);
  EXPECT_EQ(model->layers[1]->runs, 1);
}

TEST(Unit, RecomputesEveryKthBlock) {
  Model model;
  const auto expected = gradients_of(model);
  EXPECT_EQ(recompute_blocks(*model, {.every = 2}), 3);
  for (auto& layer : model->layers) layer->runs = 0;
  const auto actual = gradients_of(model);
  std::vector<int> runs;
  for (auto& layer : model->layers) runs.push_back(layer->runs);
  EXPECT_EQ(runs, (std::vector<int>{2, 1, 2, 1, 2}));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(actual[i].equal(expected[i]));
}

TEST(Unit, KeepsArgumentsThatAreNotTensors) {
  Model model;
  const auto x = torch::randn({3, 4});
  const auto shift = std::optional<at::Tensor>(torch::ones({4}));
  const auto expected = unit(model->layers[0])(x, 3.0, shift);
  recompute_blocks(*model);
  const auto actual = unit(model->layers[0])(x, 3.0, shift);
  EXPECT_TRUE(actual.equal(expected));
  EXPECT_NO_THROW(actual.sum().backward());
}

TEST(Unit, WrapsInTheOrderOfWrapCalls) {
  struct Noting final : UnitWrapper {
    Noting(std::string own_word, std::vector<std::string>& all)
        : word(std::move(own_word)), notes(all) {}
    std::vector<at::Tensor> run(UnitCall call) override {
      notes.push_back(word + " in");
      auto outputs = call.forward(call.inputs);
      notes.push_back(word + " out");
      return outputs;
    }
    std::string name() const override { return word; }
    std::string word;
    std::vector<std::string>& notes;
  };
  std::vector<std::string> log;
  Layer layer;
  layer->wrap(std::make_shared<Noting>("inner", log));
  layer->wrap(std::make_shared<Noting>("outer", log));
  EXPECT_EQ(layer->wrapper_names(), (std::vector<std::string>{"outer", "inner"}));
  (void)unit(layer)(torch::ones({1, 4}));
  EXPECT_EQ(log, (std::vector<std::string>{"outer in", "inner in", "inner out", "outer out"}));
  layer->unwrap();
  (void)unit(layer)(torch::ones({1, 4}));
  EXPECT_EQ(log.size(), 4U);
}

TEST(Unit, RefusesInvalidArguments) {
  Model model;
  recompute_blocks(*model, {.every = 2});
  EXPECT_THROW(recompute_blocks(*model), UsageError);
  EXPECT_THROW(recompute_blocks(*model, {.every = 0}), UsageError);
  torch::nn::Linear plain(2, 2);
  EXPECT_THROW(recompute_blocks(*plain), UsageError);
}

}  // namespace
}  // namespace lockstep
