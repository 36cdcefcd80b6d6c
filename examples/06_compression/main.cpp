// Compressed gradients: the same training with each method, its loss, and the bytes that it sends.
// One line is different per method; within one host compression does not pay, so `fastest_of`
// selects none here and prints the reason (docs/compression.md).
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

namespace F = torch::nn::functional;

// Trains a classifier and returns the loss of the last step, which is the mean over all ranks.
double train(const lockstep::World& world, const lockstep::ProcessGroup& group,
             const lockstep::GradientHook& hook) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(16, 128), torch::nn::ReLU(),
                            torch::nn::Linear(128, 128), torch::nn::ReLU(),
                            torch::nn::Linear(128, 4));
  const auto truth = torch::randn({16, 4});
  lockstep::Ddp ddp(*net, group);
  ddp.set_hook(hook);  // the only line that is different
  lockstep::AdamW optimizer(ddp.flat(), {.lr = 3e-3});
  torch::manual_seed(2 + world.rank());
  lockstep::Mean mean;
  for (int step = 0; step < 200; ++step) {
    const auto input = torch::randn({32, 16});
    const auto loss = F::cross_entropy(net->forward(input), input.mm(truth).argmax(1));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    mean = {};
    mean.add(loss.detach(), 1);
  }
  reduce(group, mean);

  std::int64_t bytes = 0;
  std::int64_t wire = 0;
  for (const auto& bucket : ddp.record().buckets) {
    bytes += bucket.bytes;
    wire += bucket.wire_bytes;
  }
  if (world.rank() == 0) {
    std::printf("%-28s loss %.3f, 1/%.1f of the bytes\n", hook.name().c_str(), mean.value(),
                static_cast<double>(bytes) / static_cast<double>(wire));
  }
  return mean.value();
}

int main() {
  const auto world = lockstep::init();
  const lockstep::ProcessGroup group(world);
  const double plain = train(world, group, lockstep::all_reduce_hook());
  const lockstep::Int8Compression int8;  // its state: what each rank's gradients have lost so far
  const lockstep::PowerSgd power_sgd({.rank = 2, .start_step = 20});
  double worst = 0;
  for (const auto& hook :
       {lockstep::compress_bf16(), lockstep::compress_fp16(), int8.hook(), power_sgd.hook(),
        lockstep::GradientHook::fastest_of(
            {lockstep::all_reduce_hook(), lockstep::compress_bf16()})}) {
    worst = std::max(worst, train(world, group, hook));
  }
  return worst < plain + 0.15 ? 0 : 1;
}
