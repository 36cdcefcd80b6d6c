// Less memory for more computing: a model whose blocks are run again in backward instead of keeping
// what is inside them. The model says where its blocks are, unit(block)(x); which of them are
// recomputed is chosen outside. Gradients have the same bits, dropout included.
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

// The averaged gradients of one step, one after the other.
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
  const auto plain = gradients_of(net, seeds);
  const int chosen = lockstep::recompute_blocks(*net, {.every = 2});
  const auto recomputed = gradients_of(net, seeds);
  const bool equal = recomputed.equal(plain);
  std::printf("rank %d: %d of %zu blocks recomputed, %ld gradients %s\n", world.rank(), chosen,
              net->blocks.size(), static_cast<long>(plain.numel()),
              equal ? "equal, bit for bit" : "NOT equal");
  return equal ? 0 : 1;
}
