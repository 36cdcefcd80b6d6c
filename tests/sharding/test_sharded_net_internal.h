// For tests of sharded training: a net, its data, and the comparison with plain Ddp.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/train/adam.h"

namespace lockstep {

// Small and large parameters, some longer than a span's least size, in more buckets than a ring of
// gradients holds; one in channels-last memory; a branch that a step may leave out; a frozen one.
struct ShardedNetImpl : torch::nn::Module {
  ShardedNetImpl() {
    register_module("image", image);
    register_module("norm", norm);
    register_module("wide", wide);
    register_module("deep", deep);
    register_module("deeper", deeper);
    register_module("branch", branch);
    register_module("frozen", frozen);
    register_module("head", head);
    const torch::NoGradGuard off;
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    image->weight.set_data(image->weight.contiguous(at::MemoryFormat::ChannelsLast));
    to(test_device());
  }
  at::Tensor forward(const at::Tensor& x, bool with_branch) {
    auto hidden = torch::relu(norm->forward(image->forward(x))).flatten(1);
    hidden = torch::relu(wide->forward(hidden));
    hidden = torch::relu(deeper->forward(torch::relu(deep->forward(hidden))));
    if (with_branch) hidden = hidden + branch->forward(hidden);
    return head->forward(frozen->forward(hidden));
  }
  torch::nn::Conv2d image{torch::nn::Conv2dOptions(3, 8, 3)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::Linear wide{8 * 6 * 6, 300};
  torch::nn::Linear deep{300, 300};
  torch::nn::Linear deeper{300, 300};
  torch::nn::Linear branch{300, 300};
  torch::nn::Linear frozen{300, 20};
  torch::nn::Linear head{20, 3};
};
TORCH_MODULE(ShardedNet);

inline at::Tensor images(int rank, int step, at::ScalarType dtype) {
  return (torch::arange(2 * 3 * 8 * 8, torch::kDouble) * 1.3 + rank * 17 + step * 5)
      .cos()
      .reshape({2, 3, 8, 8})
      .to(dtype)
      .to(test_device());
}

inline const std::vector<std::pair<Shard, Copies>> kKinds{{Shard::optimizer, Copies::per_rank},
                                                          {Shard::optimizer, Copies::per_host},
                                                          {Shard::gradients, Copies::per_rank},
                                                          {Shard::gradients, Copies::per_host}};

inline std::string name_of(Shard shard, Copies copies) {
  return std::string(shard == Shard::gradients ? "gradients" : "optimizer") +
         (copies == Copies::per_host ? " per host" : " per rank");
}

inline bool are_same(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.contiguous().flatten().view(torch::kByte);
  };
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         torch::equal(bytes(a), bytes(b));
}

inline std::unique_ptr<FlatOptimizer> adam_w(FlatParameters& flat) {
  return std::make_unique<AdamW>(
      flat, AdamWOptions{.weight_decay = 0.1, .groups = {no_decay_for_biases_and_norms()}});
}

inline std::vector<at::Tensor> copies_of_parameters(const torch::nn::Module& net) {
  std::vector<at::Tensor> copies;
  for (const auto& parameter : net.parameters()) copies.push_back(parameter.detach().clone());
  return copies;
}

struct OptimizerState {
  std::map<std::string, at::Tensor> named;
  ShardedTensors shards;
};

inline OptimizerState state_of(FlatOptimizer& optimizer) {
  OptimizerState state;
  for (const auto& [name, tensor] : optimizer.named_tensors()) state.named[name] = tensor.clone();
  state.shards = optimizer.sharded_tensors();
  return state;
}

/// `sharded` of all ranks together is `plain`. Collective.
inline void expect_same_state(const OptimizerState& plain, const OptimizerState& sharded,
                              const ProcessGroup& group) {
  for (const auto& [name, tensor] : sharded.named) {
    ASSERT_TRUE(plain.named.contains(name)) << name;
    EXPECT_TRUE(are_same(plain.named.at(name), tensor)) << name;
  }
  EXPECT_EQ(sharded.named.size() + sharded.shards.size(), plain.named.size());
  for (const auto& tensor : sharded.shards) {
    ASSERT_TRUE(plain.named.contains(tensor.name)) << tensor.name;
    const auto& whole = plain.named.at(tensor.name);
    EXPECT_EQ(whole.sizes().vec(), tensor.sizes);
    std::int64_t count = 0;
    for (const auto& piece : tensor.pieces) {
      EXPECT_TRUE(
          are_same(whole.flatten().narrow(0, piece.begin, piece.values.numel()), piece.values))
          << tensor.name << " from " << piece.begin;
      count += piece.values.numel();
    }
    auto all = torch::full({1}, count, torch::kLong);
    group.all_reduce(all, ReduceOp::sum).wait();
    EXPECT_EQ(all.item<std::int64_t>(), whole.numel()) << tensor.name;
  }
}

/// `run(shard, copies)` trains and returns the parameters: with shards, those of plain Ddp.
template <typename Run>
void expect_same_with_shards(const Run& run) {
  const auto plain = run(Shard::none, Copies::per_rank);
  for (const auto& [shard, copies] : kKinds) {
    const auto sharded = run(shard, copies);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(are_same(plain[i], sharded[i])) << i << ", " << name_of(shard, copies);
    }
  }
}

}  // namespace lockstep
