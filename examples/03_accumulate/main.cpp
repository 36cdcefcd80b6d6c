// Gradient accumulation, for batches larger than memory: the gradients of several micro-batches are
// added, and averaged over the ranks once, with the last micro-batch. The result is that of one
// large batch. This program trains both ways and compares the weights.
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

namespace F = torch::nn::functional;

constexpr std::int64_t kGlobalBatch = 960;

// Trains with `accumulation` micro-batches per step and returns the weights.
at::Tensor train(const lockstep::World& world, const lockstep::ProcessGroup& group,
                 const lockstep::Dataset& data, int accumulation) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(20, 50), torch::nn::Tanh(), torch::nn::Linear(50, 1));
  lockstep::Ddp ddp(*net, group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto sizes = lockstep::derive_batch_sizes(
      {.world = world.size(), .global = kGlobalBatch, .accumulation = accumulation});
  if (world.rank() == 0) std::printf("%s\n", lockstep::describe(sizes).c_str());
  lockstep::Loader loader(data, {.batch = sizes, .rank = world.rank()});

  for (const auto& batch : loader.steps(40)) {
    // Each loss is the mean over its micro-batch; the gradient of a step is the mean of these.
    const auto loss = F::mse_loss(net->forward(batch.input()), batch.target()) / accumulation;
    if (!batch.ends_step) {
      const auto pause = ddp.no_sync();
      loss.backward();
      continue;
    }
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return torch::cat({net->parameters()[0].flatten(), net->parameters()[2].flatten()}).detach();
}

int main() {
  const auto world = lockstep::init();
  lockstep::ProcessGroup group(world);
  torch::manual_seed(2);
  const auto points = torch::randn({9600, 20});
  const lockstep::TensorDataset data(
      {{"input", points}, {"target", points.sin().sum(1, /*keepdim=*/true)}});

  const auto one_batch = train(world, group, data, 1);
  const auto micro_batches = train(world, group, data, 4);
  // The order of additions differs, so the last bits of the weights may differ; nothing else does.
  const double max_diff = (one_batch - micro_batches).abs().max().item<double>();
  const double max_weight = one_batch.abs().max().item<double>();
  if (world.rank() == 0) {
    std::printf("after 40 steps: largest weight %.2f, largest difference %.1e\n", max_weight,
                max_diff);
  }
  return max_diff < 1e-5 * max_weight ? 0 : 1;
}
