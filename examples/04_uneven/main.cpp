// Data that does not split evenly: in the last step of an epoch the ranks have batches of different
// sizes, and some ranks have none. Each rank states how many samples its loss sums over (count),
// and the gradients are divided by the total over all ranks; a rank without a batch sits out. The
// BatchNorm layer uses the samples of all ranks; a rank that sits out takes part in its calls. No
// sample is dropped, repeated or weighted differently, and no rank waits for one that has no data
// left. As a reference, every rank also trains a second model on the whole batches and compares.
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

namespace F = torch::nn::functional;

constexpr std::int64_t kSamples = 97;
constexpr std::int64_t kGlobalBatch = 48;  // one sample is left for the last step of an epoch

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Conv1d(8, 16, 3), torch::nn::BatchNorm1d(16),
                               torch::nn::Tanh(), torch::nn::Flatten(),
                               torch::nn::Linear(16 * 4, 3));
}

at::Tensor sum_of_losses(torch::nn::Sequential& net, const lockstep::Batch& batch) {
  return F::cross_entropy(net->forward(batch.input()), batch.target(),
                          F::CrossEntropyFuncOptions().reduction(torch::kSum));
}

int main() {
  const auto world = lockstep::init();
  lockstep::ProcessGroup group(world);
  torch::manual_seed(2);
  const lockstep::TensorDataset data(
      {{"input", torch::randn({kSamples, 8, 6})}, {"target", torch::randint(0, 3, {kSamples})}});
  const auto sizes = lockstep::derive_batch_sizes({.world = world.size(), .global = kGlobalBatch});

  // All ranks train one model.
  auto net = make_net();
  lockstep::Ddp ddp(*net, group,
                    {.normalize = lockstep::Normalize::by_count, .sync_batch_norm = true});
  torch::optim::AdamW optimizer(net->parameters(), 1e-2);
  lockstep::Loader loader(data,
                          {.batch = sizes, .rank = world.rank(), .tail = lockstep::Tail::uneven});
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const auto& batch : loader.epoch()) {
      if (batch.count() == 0) {
        std::printf("rank %d has no sample left in epoch %d\n", world.rank(), epoch);
        ddp.sit_out();
      } else {
        ddp.count(batch.count());
        sum_of_losses(net, batch).backward();
      }
      if (ddp.should_step()) optimizer.step();
      optimizer.zero_grad();
    }
  }

  // The reference: this process alone, with whole batches.
  auto reference = make_net();
  torch::optim::AdamW reference_optimizer(reference->parameters(), 1e-2);
  lockstep::Loader whole(data, {.batch = {.local = kGlobalBatch}, .tail = lockstep::Tail::uneven});
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const auto& batch : whole.epoch()) {
      (sum_of_losses(reference, batch) / batch.count()).backward();
      reference_optimizer.step();
      reference_optimizer.zero_grad();
    }
  }

  const double max_diff =
      (net->parameters()[0] - reference->parameters()[0]).abs().max().item<double>();
  if (world.rank() == 0) {
    std::printf("after three epochs: %d ranks and one process differ by at most %.1e\n",
                world.size(), max_diff);
  }
  return max_diff < 1e-4 ? 0 : 1;
}
