// Activation checkpointing (recompute) under Ddp: whichever blocks are recomputed, and however
// deeply nested, losses, averaged gradients, buffers and random numbers are bit-identical to
// training without it. Ranks are processes, because random generators belong to the process and
// each rank draws its own dropout.
#include "lockstep/train/recompute.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

enum class Use {
  tied_weights,  // a weight is used twice in its block
  two_forwards,  // before one backward: the block recomputed first is not the one that ran last
};

// Dropout and batch statistics.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(Use how)
      : use(how),
        up(register_module("up", torch::nn::Linear(6, 12))),
        norm(register_module("norm", torch::nn::BatchNorm1d(12))),
        down(register_module("down", torch::nn::Linear(12, 6))),
        drop(register_module("drop", torch::nn::Dropout(0.3))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto inside = drop(torch::gelu(norm(up(x))));
    const auto out = x + down(inside);
    return use == Use::tied_weights ? out + torch::mm(inside, up->weight) : out;
  }

  Use use;
  torch::nn::Linear up;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear down;
  torch::nn::Dropout drop;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  explicit NetImpl(Use use) {
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block(use)));
    }
  }
  std::vector<Block> blocks;
};
TORCH_MODULE(Net);

using Forward = std::function<at::Tensor(Net&, const at::Tensor&)>;

at::Tensor plainly(Net& net, at::Tensor x) {
  for (auto& block : net->blocks) x = block(x);
  return x;
}

at::Tensor each_again(Net& net, at::Tensor x) {
  for (auto& block : net->blocks) x = recompute(block, x);
  return x;
}

// Blocks [begin, end) as one recomputed block, divided in halves inside until one block is left: an
// innermost block is recomputed by every block that contains it.
at::Tensor nested(Net& net, std::size_t begin, std::size_t end, const at::Tensor& x) {
  if (end - begin == 1) return recompute(net->blocks[begin], x);
  BlockState state;
  for (std::size_t i = begin; i < end; ++i) {
    for (auto& parameter : net->blocks[i]->parameters()) state.parameters.push_back(parameter);
    for (auto& buffer : net->blocks[i]->buffers()) state.buffers.push_back(buffer);
  }
  const BlockForward halves = [net, begin, end](const Tensors& in) mutable {
    const auto middle = begin + (end - begin) / 2;
    return Tensors{nested(net, middle, end, nested(net, begin, middle, in[0]))};
  };
  return recompute(halves, state, {x}).front();
}

at::Tensor nested_again(Net& net, const at::Tensor& x) { return nested(net, 0, 4, x); }

// The results of four steps of one rank, and all values observed on the way.
Tensors train(const ProcessGroup& group, Use use, std::size_t bucket_bytes,
              const Forward& forward) {
  Net net(use);
  fill(*net, 1);
  Ddp ddp(*net, group, {.bucket_bytes = bucket_bytes});
  torch::optim::AdamW optimizer(net->parameters(), 1e-2);
  torch::manual_seed(100 + group.rank());
  Tensors seen;
  for (int step = 0; step < 4; ++step) {
    auto loss = forward(net, batch_of(group.rank(), step)).square().mean();
    if (use == Use::two_forwards) {
      loss = loss + forward(net, batch_of(group.rank(), step + 50)).square().mean();
    }
    loss.backward();
    seen.push_back(loss.detach());
    for (auto& gradient : gradients_of(*net)) seen.push_back(gradient);
    optimizer.step();
    optimizer.zero_grad();
  }
  for (const auto& parameter : net->parameters()) seen.push_back(parameter.detach().clone());
  for (const auto& buffer : net->buffers()) seen.push_back(buffer.clone());
  seen.push_back(torch::rand({4}, test_device()));
  return seen;
}

class RecomputeUnderDdp : public ::testing::TestWithParam<std::tuple<int, Use>> {};
INSTANTIATE_TEST_SUITE_P(RanksAndUse, RecomputeUnderDdp,
                         ::testing::Combine(::testing::Values(2, 3),
                                            ::testing::Values(Use::tied_weights,
                                                              Use::two_forwards)));

TEST_P(RecomputeUnderDdp, IsBitIdenticalToTrainingWithoutIt) {
  const auto [size, use] = GetParam();
  testing::run_ranks_as_processes(size, [use = use](testing::Rank& self) {
    const ProcessGroup group(world_of_processes(self.rank(), self.size()),
                             {.timeout = std::chrono::seconds(20)});
    const auto expected = train(group, use, kDefaultBucketBytes, plainly);
    for (const auto bucket_bytes : {std::size_t{1}, kDefaultBucketBytes}) {
      EXPECT_TRUE(are_equal(train(group, use, bucket_bytes, each_again), expected)) << bucket_bytes;
      EXPECT_TRUE(are_equal(train(group, use, bucket_bytes, nested_again), expected))
          << bucket_bytes;
    }
  });
}

}  // namespace
}  // namespace lockstep
