// The same net trained in float32, bfloat16 and float16. With Autocast, matrix products compute in
// 16 bits while parameters stay in float32. The range of float16 is small: the loss is scaled, and
// steps whose gradients overflow are skipped.
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

double train(const lockstep::World& world, at::ScalarType dtype) {
  const lockstep::Seeds seeds(7, {.leaf = world.rank()});
  seeds.begin_shared("init");  // equal weights on every rank
  torch::nn::Sequential net(torch::nn::Linear(16, 64), torch::nn::GELU(), torch::nn::Linear(64, 1));
  lockstep::ProcessGroup group(world);
  lockstep::Ddp ddp(*net, group);
  const auto lr =
      1e-2 * lockstep::linear_warmup(20).then(lockstep::cosine(180, {.min_lr_ratio = 0.1}));
  lockstep::AdamW optimizer(ddp.flat(), {.groups = {lockstep::no_decay_for_biases_and_norms()}});
  // The initial scale is far too large, to show how the scaler reduces it.
  lockstep::GradScaler scaler({.initial_scale = 1e9, .enabled = dtype == at::kHalf});
  lockstep::Mean final_loss;
  for (int step = 0; step < 200; ++step) {
    seeds.begin_step(step);
    const auto input = torch::randn({64, 16});
    const auto target = input.sin().sum(1, /*keepdim=*/true);
    at::Tensor loss;
    {
      const lockstep::Autocast lower(dtype);  // float32: off
      loss = torch::mse_loss(net->forward(input), target);
    }
    scaler.scale(loss).backward();  // averaged over the ranks
    scaler.unscale(ddp.flat());     // the same result on every rank
    lockstep::clip_grad_norm(ddp.flat(), 1.0);
    scaler.step(optimizer, lr.at(step));
    scaler.update();
    optimizer.zero_grad();
    if (step >= 180) final_loss.add(loss, 64);
  }
  lockstep::reduce(group, final_loss);
  if (world.rank() == 0) {
    std::printf("%-9s loss %.4f; scale %.3g after %lld skipped steps\n", c10::toString(dtype),
                final_loss.value(), scaler.current_scale(),
                static_cast<long long>(scaler.num_skipped()));
  }
  return final_loss.value();
}

int main() {
  const auto world = lockstep::init();
  const double exact = train(world, at::kFloat);
  const double brain = train(world, at::kBFloat16);
  const double half = train(world, at::kHalf);
  return brain < 2 * exact + 0.1 && half < 2 * exact + 0.1 ? 0 : 1;
}
