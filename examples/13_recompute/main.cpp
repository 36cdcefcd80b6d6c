// Activation checkpointing: less memory for more computation. Chosen blocks do not keep their
// activations; backward runs their forward again. The model marks its blocks with unit(block)(x);
// the program chooses which of them are recomputed. Gradients are bit-identical, dropout included.
#include <torch/torch.h>

#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

constexpr std::int64_t kWidth = 64;

struct BlockImpl : torch::nn::Module, lockstep::Unit {
  BlockImpl()
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        up(register_module("up", torch::nn::Linear(kWidth, 4 * kWidth))),
        down(register_module("down", torch::nn::Linear(4 * kWidth, kWidth))),
        drop(register_module("drop", torch::nn::Dropout(0.1))) {}
  at::Tensor forward(const at::Tensor& x) { return x + drop(down(torch::gelu(up(norm(x))))); }

  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
  torch::nn::Dropout drop;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 6; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Block()));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : blocks) x = lockstep::unit(block)(x);
    return x;
  }
  std::vector<Block> blocks;
};
TORCH_MODULE(Net);

// The averaged gradients of one step as one flat tensor.
at::Tensor gradients_of(Net& net, const lockstep::Seeds& seeds) {
  seeds.begin_step(0);
  net->zero_grad();
  net->forward(torch::randn({32, kWidth})).square().mean().backward();
  std::vector<at::Tensor> all;
  for (const auto& parameter : net->parameters()) all.push_back(parameter.grad().flatten());
  return torch::cat(all);
}

int main() {
  const auto world = lockstep::init();
  const lockstep::Seeds seeds(7, {.leaf = world.rank()});
  seeds.begin_shared("init");
  Net net;
  lockstep::ProcessGroup group(world);
  lockstep::Ddp ddp(*net, group);
  const auto reference = gradients_of(net, seeds);
  const int num_recomputed = lockstep::recompute_blocks(*net, {.every = 2});
  const auto recomputed = gradients_of(net, seeds);
  const bool equal = recomputed.equal(reference);
  std::printf("rank %d: %d of %zu blocks recomputed, %ld gradients %s\n", world.rank(),
              num_recomputed, net->blocks.size(), static_cast<long>(reference.numel()),
              equal ? "bitwise equal" : "NOT equal");
  return equal ? 0 : 1;
}
