// Example 02 on GPUs: the loop is the same, the model and the batches are on the device of the
// rank. Without a GPU it runs on the CPU. Ranks may share a GPU: `lockstep run -n 2
// --allow-shared-gpu`.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include "lockstep/lockstep.h"

// Points on two spirals; the label is the spiral.
lockstep::TensorDataset spirals(std::int64_t count) {
  const auto label = torch::arange(count).remainder(2);
  const auto radius = torch::rand({count});
  const auto angle = 6 * radius + label * M_PI;
  const auto points = torch::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  return lockstep::TensorDataset({{"input", points}, {"target", label}});
}

int main() {
  const auto world = lockstep::init();
  lockstep::ProcessGroup group(world);
  const auto device = lockstep::device_of(world);  // the GPU of this rank, or the CPU
  torch::manual_seed(1);  // the same data on every rank; the loader gives each rank its shard

  const auto data = spirals(9600);
  lockstep::Loader loader(
      data, {.batch = lockstep::derive_batch_sizes({.world = world.size(), .global = 240}),
             .rank = world.rank(),
             .device = device});
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                            torch::nn::ReLU(), torch::nn::Linear(64, 2));
  net->to(device);                 // before the Ddp, which keeps parameters where they are
  lockstep::Ddp ddp(*net, group);  // from here on every rank has rank 0's weights
  torch::optim::AdamW optimizer(net->parameters(), 5e-3);

  double accuracy = 0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    lockstep::Accuracy epoch_accuracy;
    for (const auto& batch : loader.epoch()) {
      const auto logits = net->forward(batch.input());
      const auto loss = torch::cross_entropy_loss(logits, batch.target());
      loss.backward();  // returns with averaged gradients
      optimizer.step();
      optimizer.zero_grad();
      epoch_accuracy.add(logits, batch.target());
    }
    lockstep::reduce(group, epoch_accuracy);  // adds the counts of all ranks
    accuracy = epoch_accuracy.value();
    if (world.rank() == 0) {
      std::printf("epoch %d: accuracy %.1f %%\n", epoch, 100 * accuracy);
    }
  }
  return accuracy > 0.9 ? 0 : 1;
}
