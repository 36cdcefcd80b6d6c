// A sharded optimizer (ZeRO-1): every rank has a replica of the model, and the ranks divide the
// work and the state of the optimizer among them. One option changes; the results are bit-identical
// to those without it. clip_grad_norm() and step() are now collective: every rank calls them.
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
  torch::manual_seed(1);  // the same data on every rank; the loader gives each rank its shard

  const auto data = spirals(9600);
  lockstep::Loader loader(
      data, {.batch = lockstep::derive_batch_sizes({.world = world.size(), .global = 240}),
             .rank = world.rank()});
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                            torch::nn::ReLU(), torch::nn::Linear(64, 2));
  lockstep::Ddp ddp(*net, group, {.shard = lockstep::Shard::optimizer});  // the line that changes
  lockstep::AdamW optimizer(ddp.flat(), {.lr = 5e-3});  // has the state of this rank's shards only
  std::printf("rank %d of %d updates %lld of %lld elements\n", world.rank(), world.size(),
              static_cast<long long>(ddp.flat().shards().packed_length(0)),
              static_cast<long long>(ddp.flat().layout().segments[0].length));

  double accuracy = 0;
  for (int epoch = 0; epoch < 8; ++epoch) {
    lockstep::Accuracy epoch_accuracy;
    for (const auto& batch : loader.epoch()) {
      const auto logits = net->forward(batch.input());
      const auto loss = torch::cross_entropy_loss(logits, batch.target());
      loss.backward();                            // returns with the averages of this rank's shards
      lockstep::clip_grad_norm(ddp.flat(), 1.0);  // by the norm of the whole gradient
      optimizer.step();  // updates this rank's shards; returns with those of all ranks
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
