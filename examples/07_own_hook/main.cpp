// A gradient hook of your own, in both forms. The simple form makes one call per bucket. The other
// one is a coroutine: it sends a quarter of the gradients per step, and keeps the rest on this rank
// until its turn comes (error feedback). Both train a regression, and the program checks the loss.
#include <torch/torch.h>

#include <cstdio>
#include <map>
#include <string>

#include "lockstep/lockstep.h"

using lockstep::GradientBucket;
using lockstep::HookTask;

// Simple form: each rank scales its own gradients to a norm of at most 1, then they are averaged.
lockstep::Work clip_and_average(GradientBucket& bucket) {
  const auto norm = bucket.values().norm().item<double>();
  if (norm > 1) bucket.values().div_(norm);
  return bucket.all_reduce(bucket.values());
}

// What this rank has not sent yet, by parameter: buckets change after the first step.
class QuarterOfGradients {
 public:
  [[nodiscard]] lockstep::GradientHook hook() {
    return {[this](GradientBucket& bucket) { return reduce(bucket); }, "a quarter per step"};
  }

 private:
  static constexpr std::int64_t kParts = 4;

  HookTask reduce(GradientBucket& bucket) {
    auto& values = bucket.values();
    bucket.encode([&] {
      for (const auto& each : bucket.parameters()) {
        const auto kept = kept_.find(each.name);
        if (kept != kept_.end()) bucket.values_of(each).add_(kept->second);
      }
    });
    auto due = values.slice(0, step_ % kParts, values.numel(), kParts);
    auto wire = bucket.scratch("wire", due.numel(), values.scalar_type());
    wire.copy_(due);
    co_await bucket.all_reduce(wire);  // backward() continues meanwhile

    // State changes only when the step has succeeded on all ranks.
    due.zero_();
    for (const auto& each : bucket.parameters()) {
      bucket.on_commit(
          [this, name = each.name, rest = bucket.values_of(each).clone()] { kept_[name] = rest; });
    }
    if (bucket.is_last()) bucket.on_commit([this] { ++step_; });
    bucket.decode(
        [&] { values.zero_().slice(0, step_ % kParts, values.numel(), kParts).copy_(wire); });
  }

  std::map<std::string, at::Tensor> kept_;
  std::int64_t step_ = 0;
};

// Trains with `hook` and returns the last loss.
double train(const lockstep::World& world, const lockstep::ProcessGroup& group,
             const lockstep::GradientHook& hook) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  const auto truth = torch::randn({8, 1});
  lockstep::Ddp ddp(*net, group, {.bucket_bytes = 512});
  ddp.set_hook(hook);  // before the first backward()
  torch::optim::SGD optimizer(net->parameters(), 0.02);
  torch::manual_seed(2 + world.rank());
  const auto input = torch::randn({64, 8});
  double last = 0;
  for (int step = 0; step < 400; ++step) {
    const auto loss = torch::mse_loss(net->forward(input), input.mm(truth));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    last = loss.item<double>();
  }
  std::int64_t bytes = 0;
  std::int64_t wire = 0;
  for (const auto& bucket : ddp.record().buckets) {
    bytes += bucket.bytes;
    wire += bucket.wire_bytes;
  }
  if (world.rank() == 0) {
    std::printf("%-20s loss %.4f, %lld of %lld bytes per step\n", hook.name().c_str(), last,
                static_cast<long long>(wire), static_cast<long long>(bytes));
  }
  return last;
}

int main() {
  const auto world = lockstep::init();
  const lockstep::ProcessGroup group(world);
  QuarterOfGradients quarter;
  const double clipped = train(world, group, {clip_and_average, "clip and average"});
  const double compressed = train(world, group, quarter.hook());
  return clipped < 0.2 && compressed < 0.2 ? 0 : 1;
}
