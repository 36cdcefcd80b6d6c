// Twenty steps of the models of this repository with each kind of shards: parameters and norms are
// those of plain Ddp, bit for bit.
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
#include "models/gpt.h"
#include "models/made_up_numbers.h"
#include "models/mlp.h"
#include "models/resnet.h"

namespace lockstep {
namespace {

constexpr int kSteps = 20;

/// A model, and its loss for the batch of a rank and step.
struct Case {
  std::string name;
  std::function<
      std::pair<std::shared_ptr<torch::nn::Module>, std::function<at::Tensor(int seed)>>()>
      make;
};

at::Tensor class_loss(const at::Tensor& logits, int seed) {
  return torch::nn::functional::cross_entropy(
      logits, models::made_up_classes(logits.size(0), logits.size(1), seed));
}

const std::vector<Case> kCases{
    {"Mlp",
     [] {
       models::Mlp net(models::MlpOptions{.widths = {40, 256, 256, 256, 10}});
       return std::pair(
           net.ptr(), std::function([net](int seed) mutable {
             return class_loss(net->forward(models::made_up_numbers({3, 40}, seed)), seed);
           }));
     }},
    {"ResNet",
     [] {
       models::ResNet18 net(models::ResNetOptions{.width = 8});
       return std::pair(
           net.ptr(), std::function([net](int seed) mutable {
             return class_loss(net->forward(models::made_up_numbers({2, 3, 8, 8}, seed)), seed);
           }));
     }},
    {"Gpt",
     [] {
       models::Gpt net(models::GptOptions{
           .vocabulary = 61, .context = 16, .layers = 2, .heads = 2, .width = 96});
       return std::pair(net.ptr(), std::function([net](int seed) mutable {
                          const auto tokens = models::made_up_tokens(2, 17, 61, seed);
                          const auto logits = net->forward(tokens.slice(1, 0, 16));
                          return torch::nn::functional::cross_entropy(logits.flatten(0, 1),
                                                                      tokens.slice(1, 1).flatten());
                        }));
     }},
};

struct Result {
  std::vector<at::Tensor> parameters;
  std::vector<double> norms;
};

Result train(const Case& of, const ProcessGroup& group, Shard shard, Copies copies) {
  const auto [net, loss] = of.make();
  models::fill(*net);
  Ddp ddp(*net, group, {.bucket_bytes = 100 << 10, .shard = shard, .copies = copies});
  AdamW optimizer(ddp.flat(), {.weight_decay = 0.1, .groups = {no_decay_for_biases_and_norms()}});
  Result result;
  for (int step = 0; step < kSteps; ++step) {
    loss(step * group.size() + group.rank()).backward();
    result.norms.push_back(clip_grad_norm(ddp.flat(), 0.1));
    optimizer.step(1e-3);
    optimizer.zero_grad();
  }
  for (const auto& parameter : net->parameters()) {
    result.parameters.push_back(parameter.detach().clone());
  }
  return result;
}

class ShardedModels : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Models, ShardedModels, ::testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST_P(ShardedModels, TrainAsPlainDdp) {
  for (const int size : {1, 2, 3, 4, 5}) {
    with_groups(size, [&](ProcessGroup& group) {
      const auto plain = train(GetParam(), group, Shard::none, Copies::per_rank);
      EXPECT_GT(plain.norms.front(), 0.1) << "clipping takes effect";
      for (const auto shard : {Shard::optimizer, Shard::gradients}) {
        for (const auto copies : {Copies::per_rank, Copies::per_host}) {
          const auto sharded = train(GetParam(), group, shard, copies);
          EXPECT_EQ(plain.norms, sharded.norms);
          for (std::size_t i = 0; i < plain.parameters.size(); ++i) {
            EXPECT_TRUE(torch::equal(plain.parameters[i], sharded.parameters[i]))
                << i << " with " << size << " ranks, kind " << static_cast<int>(shard)
                << ", copies " << static_cast<int>(copies);
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
