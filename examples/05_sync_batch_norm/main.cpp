// SyncBatchNorm: BatchNorm over the batches of all ranks, for batches that are too small on each
// rank. One option of Ddp; the model does not change. As a reference, every rank also trains a
// second model on the whole batches and compares weights and running statistics.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>

#include "lockstep/lockstep.h"

namespace F = torch::nn::functional;

constexpr std::int64_t kGlobalBatch = 12;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::relu(norm(conv(x))).mean({2, 3})); }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 8, 3).bias(false)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::Linear head{8, 2};
};
TORCH_MODULE(Net);

Net make_net() {
  torch::manual_seed(1);
  return Net();
}

void step(Net& net, torch::optim::Optimizer& optimizer, const lockstep::Batch& batch) {
  F::cross_entropy(net->forward(batch.input()), batch.target()).backward();
  optimizer.step();
  optimizer.zero_grad();
}

double largest_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  return largest;
}

int main() {
  const auto world = lockstep::init();
  lockstep::ProcessGroup group(world);
  torch::manual_seed(2);
  const auto target = torch::randint(0, 2, {96});
  const auto input = torch::randn({96, 1, 6, 6}) + target.view({96, 1, 1, 1}) + 100;
  const lockstep::TensorDataset data({{"input", input}, {"target", target}});

  auto net = make_net();
  lockstep::Ddp ddp(*net, group, {.sync_batch_norm = true});  // the only line that is different
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  const auto sizes = lockstep::derive_batch_sizes({.world = world.size(), .global = kGlobalBatch});
  lockstep::Loader loader(data, {.batch = sizes, .rank = world.rank()});
  for (const auto& batch : loader.epoch()) step(net, optimizer, batch);

  auto reference = make_net();
  torch::optim::SGD reference_optimizer(reference->parameters(), 0.05);
  lockstep::Loader whole(data, {.batch = {.local = kGlobalBatch}});
  for (const auto& batch : whole.epoch()) step(reference, reference_optimizer, batch);

  const double weights = largest_difference(net->parameters(), reference->parameters());
  const double statistics = largest_difference(net->buffers(), reference->buffers());
  if (world.rank() == 0) {
    std::printf("%d ranks and one process: weights differ by %.1e, running statistics by %.1e\n",
                world.size(), weights, statistics);
  }
  return weights < 1e-3 && statistics < 1e-2 ? 0 : 1;
}
