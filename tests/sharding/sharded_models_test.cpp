// Twenty steps of the models of this repository with each kind of shards, and some with another
// optimizer, dtype or feature of a step: parameters, the optimizer's state and norms are those of
// plain Ddp, bit for bit.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/clip.h"
#include "lockstep/train/grad_scaler.h"
#include "lockstep/train/sgd.h"
#include "models/gpt.h"
#include "models/made_up_numbers.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "test_sharded_net_internal.h"

namespace lockstep {
namespace {

using LossOf = std::function<at::Tensor(int seed, at::ScalarType dtype)>;

/// A model, and its loss for the batch of a rank and step.
struct Case {
  std::string name;
  std::function<std::pair<std::shared_ptr<torch::nn::Module>, LossOf>()> make;
};

/// How it is trained.
struct Way {
  std::string name = "AdamW";
  int steps = 20;
  bool is_sgd = false;
  at::ScalarType dtype = at::kFloat;  // bfloat16: the optimizer has float32 masters
  bool scales = false;
  int accumulate = 1;
};

at::Tensor class_loss(const at::Tensor& logits, int seed) {
  return torch::nn::functional::cross_entropy(
      logits.to(torch::kFloat), models::made_up_classes(logits.size(0), logits.size(1), seed));
}

const std::vector<Case> kCases{
    {"Mlp",
     [] {
       models::Mlp net(models::MlpOptions{.widths = {40, 256, 256, 256, 10}});
       return std::pair(net.ptr(), LossOf([net](int seed, at::ScalarType dtype) mutable {
                          return class_loss(
                              net->forward(models::made_up_numbers({3, 40}, seed).to(dtype)), seed);
                        }));
     }},
    {"ResNet",
     [] {
       models::ResNet18 net(models::ResNetOptions{.width = 8});
       return std::pair(net.ptr(), LossOf([net](int seed, at::ScalarType dtype) mutable {
                          return class_loss(
                              net->forward(models::made_up_numbers({2, 3, 8, 8}, seed).to(dtype)),
                              seed);
                        }));
     }},
    {"Gpt",
     [] {
       models::Gpt net(models::GptOptions{
           .vocabulary = 61, .context = 16, .layers = 2, .heads = 2, .width = 96});
       return std::pair(net.ptr(), LossOf([net](int seed, at::ScalarType /*dtype*/) mutable {
                          const auto tokens = models::made_up_tokens(2, 17, 61, seed);
                          const auto logits = net->forward(tokens.slice(1, 0, 16));
                          return torch::nn::functional::cross_entropy(
                              logits.flatten(0, 1).to(torch::kFloat), tokens.slice(1, 1).flatten());
                        }));
     }},
};

struct Result {
  std::vector<at::Tensor> parameters;
  OptimizerState state;
  std::vector<double> norms;
};

std::unique_ptr<FlatOptimizer> make_optimizer(const Way& way, FlatParameters& flat) {
  if (!way.is_sgd) return adam_w(flat);
  return std::make_unique<SGD>(flat, SGDOptions{.momentum = 0.9, .weight_decay = 0.01});
}

Result train(const Case& of, const Way& way, const ProcessGroup& group, Shard shard,
             Copies copies) {
  const auto [net, loss_of] = of.make();
  models::fill(*net);
  net->to(way.dtype);
  Ddp ddp(
      *net, group,
      {.bucket_bytes = 100 << 10, .accumulate = way.accumulate, .shard = shard, .copies = copies});
  const auto optimizer = make_optimizer(way, ddp.flat());
  GradScaler scaler({.initial_scale = 1 << 10, .growth_interval = 2, .enabled = way.scales});
  Result result;
  for (int step = 0; step < way.steps; ++step) {
    for (int part = 0; part < way.accumulate; ++part) {
      const int batch = (step * way.accumulate + part) * group.size() + group.rank();
      scaler.scale(loss_of(batch, way.dtype)).backward();
    }
    scaler.unscale(ddp.flat());
    result.norms.push_back(clip_grad_norm(ddp.flat(), 0.1));
    scaler.step(*optimizer, 1e-3);
    scaler.update();
    optimizer->zero_grad();
  }
  result.parameters = copies_of_parameters(*net);
  result.state = state_of(*optimizer);
  return result;
}

void expect_same_for_all_kinds(const Case& of, const Way& way, const ProcessGroup& group) {
  const auto plain = train(of, way, group, Shard::none, Copies::per_rank);
  EXPECT_GT(plain.norms.front(), 0.1) << "clipping takes effect";
  for (const auto& [shard, copies] : kKinds) {
    SCOPED_TRACE(way.name + " with " + std::to_string(group.size()) + " ranks, " +
                 name_of(shard, copies));
    const auto sharded = train(of, way, group, shard, copies);
    EXPECT_EQ(plain.norms, sharded.norms);
    for (std::size_t i = 0; i < plain.parameters.size(); ++i) {
      EXPECT_TRUE(are_same(plain.parameters[i], sharded.parameters[i])) << i;
    }
    expect_same_state(plain.state, sharded.state, group);
  }
}

// One more way for each number of ranks.
const std::vector<Way> kWays{
    {.name = "SGD", .steps = 4, .is_sgd = true},
    {.name = "bfloat16", .steps = 3, .dtype = at::kBFloat16},
    {.name = "accumulation", .steps = 2, .accumulate = 2},
    {.name = "scaler", .steps = 4, .scales = true},
    {.name = "SGD with accumulation", .steps = 2, .is_sgd = true, .accumulate = 2},
};

class ShardedModels : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Models, ShardedModels, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST_P(ShardedModels, TrainAsPlainDdp) {
  for (const int size : {1, 2, 3, 4, 5}) {
    with_groups(size, [&](ProcessGroup& group) {
      expect_same_for_all_kinds(GetParam(), {}, group);
      expect_same_for_all_kinds(GetParam(), kWays[static_cast<std::size_t>(size) - 1], group);
    });
  }
}

}  // namespace
}  // namespace lockstep
