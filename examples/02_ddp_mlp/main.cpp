// Data-parallel training, all of it. Start it plainly for one rank, with `lockstep run` for one a
// core: every rank has the model and reads its own part of each batch, and backward() returns with
// gradients averaged over all of them. Loop, model and optimizer are LibTorch's own.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include "lockstep/lockstep.h"

// Points of two spirals, and which spiral each is on.
lockstep::TensorDataset spirals(std::int64_t count) {
  const auto which = torch::arange(count).remainder(2);
  const auto radius = torch::rand({count});
  const auto angle = 6 * radius + which * M_PI;
  const auto points = torch::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  return lockstep::TensorDataset({{"input", points}, {"target", which}});
}

int main() {
  const auto world = lockstep::init();
  lockstep::ProcessGroup group(world);
  torch::manual_seed(1);  // the same data everywhere; who reads which part is the loader's affair

  const auto data = spirals(9600);
  lockstep::Loader loader(
      data, {.batch = lockstep::derive_batch_sizes({.world = world.size(), .global = 240}),
             .rank = world.rank()});
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                            torch::nn::ReLU(), torch::nn::Linear(64, 2));
  lockstep::Ddp ddp(*net, group);  // from here on all ranks have rank 0's weights
  torch::optim::AdamW optimizer(net->parameters(), 5e-3);

  double right = 0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    auto sums = torch::zeros({2});
    for (const auto& batch : loader.epoch()) {
      const auto scores = net->forward(batch.input());
      torch::cross_entropy_loss(scores, batch.target()).backward();  // averaged when it returns
      optimizer.step();
      optimizer.zero_grad();
      sums[0] += scores.argmax(1).eq(batch.target()).sum();
      sums[1] += batch.count();
    }
    group.all_reduce(sums).wait();
    right = (sums[0] / sums[1]).item<double>();
    if (world.rank() == 0) {
      std::printf("epoch %d: %.1f %% of %.0f points right\n", epoch, 100 * right,
                  sums[1].item<double>());
    }
  }
  return right > 0.9 ? 0 : 1;
}
