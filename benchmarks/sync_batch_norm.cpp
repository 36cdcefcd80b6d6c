// The time of a ResNet-18 step with SyncBatchNorm, relative to the same step with BatchNorm:
//   LOCKSTEP_RANKS=2 sync_batch_norm [BATCH [WIDTH]]
// Both models take turns in the same ranks, so that other programs disturb both. The median counts.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "lockstep/lockstep.h"
#include "models/resnet.h"

namespace {

using namespace lockstep;

struct Subject {
  Subject(const ProcessGroup& group, std::int64_t width, bool synced)
      : net(models::ResNetOptions{.width = width}),
        ddp(*net, group, {.sync_batch_norm = synced}),
        optimizer(net->parameters(), 1e-3) {}

  double seconds_of_step(const ProcessGroup& group, const at::Tensor& x, const at::Tensor& target) {
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    torch::cross_entropy_loss(net->forward(x), target).backward();
    optimizer.step();
    optimizer.zero_grad();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  models::ResNet18 net;
  Ddp ddp;
  torch::optim::SGD optimizer;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int main(int num_arguments, char** arguments) {
  const auto world = init();
  const ProcessGroup group(world);
  const std::int64_t batch = num_arguments > 1 ? std::atoll(arguments[1]) : 16;
  const std::int64_t width = num_arguments > 2 ? std::atoll(arguments[2]) : 64;
  torch::manual_seed(1);
  Subject plain(group, width, false);
  Subject synced(group, width, true);
  const auto x = torch::randn({batch, 3, 32, 32});
  const auto target = torch::randint(0, 10, {batch});
  std::vector<double> of_plain;
  std::vector<double> of_synced;
  constexpr int kWarmUp = 2;
  constexpr int kRounds = 15;
  for (int round = 0; round < kWarmUp + kRounds; ++round) {
    const double without = plain.seconds_of_step(group, x, target);
    const double with = synced.seconds_of_step(group, x, target);
    if (round < kWarmUp) continue;
    of_plain.push_back(without);
    of_synced.push_back(with);
  }
  if (world.rank() == 0) {
    fmt::print(
        "ResNet-18, width {}, {} ranks, batch {} per rank: BatchNorm {:.1f} ms, "
        "SyncBatchNorm {:.1f} ms per step: {:.3f} x\n",
        width, world.size(), batch, 1e3 * median(of_plain), 1e3 * median(of_synced),
        median(of_synced) / median(of_plain));
  }
  return 0;
}
