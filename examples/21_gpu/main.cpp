// Example 02 on a GPU: the loop is the same, the model and each batch are moved to the device.
// Without a GPU it runs on the CPU. This version supports one rank on a GPU.
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
  torch::manual_seed(1);
  const auto device = torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;

  const auto data = spirals(9600);
  lockstep::Loader loader(
      data, {.batch = lockstep::derive_batch_sizes({.world = world.size(), .global = 240}),
             .rank = world.rank()});
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                            torch::nn::ReLU(), torch::nn::Linear(64, 2));
  net->to(device);  // before the Ddp, which keeps parameters where they are
  lockstep::Ddp ddp(*net, group);
  lockstep::AdamW optimizer(ddp.flat(), {.lr = 5e-3});

  double accuracy = 0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    lockstep::Accuracy epoch_accuracy;
    for (const auto& batch : loader.epoch()) {
      const auto target = batch.target().to(device);
      const auto logits = net->forward(batch.input().to(device));
      const auto loss = torch::cross_entropy_loss(logits, target);
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      epoch_accuracy.add(logits, target);
    }
    accuracy = epoch_accuracy.value();
    std::printf("epoch %d: accuracy %.1f %%\n", epoch, 100 * accuracy);
  }
  return accuracy > 0.9 ? 0 : 1;
}
