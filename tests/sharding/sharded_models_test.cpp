// Twenty steps of the models of this repository with each kind of shards, and some with another
// optimizer, dtype or feature of a step: parameters, the optimizer's state and norms are those of
// plain Ddp, bit for bit. Twenty of each, for each number of ranks, if LOCKSTEP_SOAK_SEED is set:
// nothing here is random.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/autocast.h"
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
  double max_norm = 0.1;  // below the norm of the first step
  int accumulate = 1;
  bool by_count = false;  // one rank per step has no samples
  bool freezes = false;   // the first parameter
  bool is_half = false;   // forward computes in float16, and the first scale is too large for it
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
  std::int64_t num_skipped = 0;  // by the scaler
};

std::unique_ptr<FlatOptimizer> make_optimizer(const Way& way, FlatParameters& flat) {
  if (!way.is_sgd) return adam_w(flat);
  return std::make_unique<SGD>(flat, SGDOptions{.momentum = 0.9, .weight_decay = 0.01});
}

GradScaler make_scaler(const Way& way) {
  // After the step that overflows, the scale is 16.
  if (way.is_half) return GradScaler({.initial_scale = 0x1p24, .backoff_factor = 0x1p-20});
  return GradScaler({.initial_scale = 1 << 10, .growth_interval = 2, .enabled = way.scales});
}

at::Tensor loss_in(const Way& way, const LossOf& loss_of, int batch) {
  std::optional<Autocast> lower;
  if (way.is_half) lower.emplace(at::kHalf);
  return loss_of(batch, way.dtype);
}

// With by_count, rank `step` modulo the number of ranks sits out or has an empty batch, in turns.
void run_micro_batch(Ddp& ddp, const Way& way, const LossOf& loss_of, const GradScaler& scaler,
                     const ProcessGroup& group, int step, int part) {
  const int size = group.size();
  const bool is_empty = way.by_count && size > 1 && group.rank() == step % size;
  if (is_empty && (step + step / size) % 2 == 0) return ddp.sit_out();
  auto loss = loss_in(way, loss_of, (step * way.accumulate + part) * size + group.rank());
  if (way.by_count) {
    const int samples = is_empty ? 0 : group.rank() + 1;
    ddp.count(samples);
    loss = loss * samples;
  }
  scaler.scale(loss).backward();
}

Result train(const Case& of, const Way& way, const ProcessGroup& group, Shard shard,
             Copies copies) {
  const auto [net, loss_of] = of.make();
  models::fill(*net);
  net->to(way.dtype);
  if (way.freezes) net->parameters().front().set_requires_grad(false);
  Ddp ddp(*net, group,
          {.bucket_bytes = 100 << 10,
           .normalize = way.by_count ? Normalize::by_count : Normalize::by_rank,
           .accumulate = way.accumulate,
           .shard = shard,
           .copies = copies});
  const auto optimizer = make_optimizer(way, ddp.flat());
  auto scaler = make_scaler(way);
  Result result;
  for (int step = 0; step < way.steps; ++step) {
    for (int part = 0; part < way.accumulate; ++part) {
      run_micro_batch(ddp, way, loss_of, scaler, group, step, part);
    }
    scaler.unscale(ddp.flat());
    result.norms.push_back(clip_grad_norm(ddp.flat(), way.max_norm));
    scaler.step(*optimizer, 1e-3);
    scaler.update();
    optimizer->zero_grad();
  }
  result.parameters = copies_of_parameters(*net);
  result.state = state_of(*optimizer);
  result.num_skipped = scaler.num_skipped();
  return result;
}

void expect_same_for_all_kinds(const Case& of, const Way& way, const ProcessGroup& group) {
  SCOPED_TRACE(way.name + " with " + std::to_string(group.size()) + " ranks");
  const auto plain = train(of, way, group, Shard::none, Copies::per_rank);
  EXPECT_GT(way.is_half ? plain.norms.back() : plain.norms.front(), way.max_norm)
      << "clipping takes effect";
  EXPECT_EQ(plain.num_skipped > 0, way.is_half);
  EXPECT_LT(plain.num_skipped, way.steps) << "steps without an overflow";
  for (const auto& [shard, copies] : kKinds) {
    SCOPED_TRACE(name_of(shard, copies));
    const auto sharded = train(of, way, group, shard, copies);
    // As bytes: the norm of a step that overflows may be NaN.
    EXPECT_TRUE(are_same(at::tensor(plain.norms), at::tensor(sharded.norms)));
    EXPECT_EQ(plain.num_skipped, sharded.num_skipped);
    for (std::size_t i = 0; i < plain.parameters.size(); ++i) {
      EXPECT_TRUE(are_same(plain.parameters[i], sharded.parameters[i])) << i;
    }
    expect_same_state(plain.state, sharded.state, group);
  }
}

const std::vector<Way> kWays{
    {.name = "SGD", .steps = 4, .is_sgd = true},
    {.name = "bfloat16", .steps = 3, .dtype = at::kBFloat16},
    {.name = "accumulation", .steps = 2, .accumulate = 2},
    {.name = "scaler", .steps = 4, .scales = true},
    {.name = "SGD with accumulation", .steps = 2, .is_sgd = true, .accumulate = 2},
    {.name = "by_count", .steps = 4, .by_count = true},
    {.name = "a frozen parameter", .steps = 3, .max_norm = 0.01, .freezes = true},
    {.name = "float16", .steps = 3, .scales = true, .is_half = true},
};

// Every second one with an odd number of ranks, the others with an even one: each with two of 2, 3,
// 4 and 5 ranks.
std::vector<Way> ways_of(int size) {
  const bool is_soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED").has_value();
  std::vector<Way> ways;
  for (std::size_t i = 0; i < kWays.size(); ++i) {
    if (is_soak || (i + static_cast<std::size_t>(size)) % 2 == 1) ways.push_back(kWays[i]);
    if (is_soak) ways.back().steps = Way().steps;
  }
  return ways;
}

class ShardedModels : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Models, ShardedModels, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST_P(ShardedModels, TrainAsPlainDdp) {
  for (const int size : {1, 2, 3, 4, 5}) {
    with_groups(size, [&](ProcessGroup& group) {
      expect_same_for_all_kinds(GetParam(), {}, group);
      for (const auto& way : ways_of(size)) expect_same_for_all_kinds(GetParam(), way, group);
    });
  }
}

}  // namespace
}  // namespace lockstep
