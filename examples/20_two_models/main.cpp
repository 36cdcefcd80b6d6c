// Two models that train against each other, as in a GAN: two Ddp objects on one group, two
// optimizers. The generator's backward also produces gradients of the discriminator, which are not
// needed: no_sync() skips their reduction, and zero_grad() drops them before the next step.
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

namespace F = torch::nn::functional;

constexpr int kSteps = 300;
constexpr std::int64_t kBatch = 64;  // per rank

// Binary cross entropy of `logits` against the label "real" or "generated".
at::Tensor loss_of(const at::Tensor& logits, bool is_real) {
  return F::binary_cross_entropy_with_logits(logits, torch::full_like(logits, is_real ? 1 : 0));
}

int main() {
  const auto world = lockstep::init();
  lockstep::ProcessGroup group(world);
  torch::manual_seed(1);
  torch::nn::Sequential generator(torch::nn::Linear(4, 32), torch::nn::ReLU(),
                                  torch::nn::Linear(32, 1));
  torch::nn::Sequential discriminator(torch::nn::Linear(1, 32), torch::nn::ReLU(),
                                      torch::nn::Linear(32, 1));
  lockstep::Ddp generator_ddp(*generator, group);
  lockstep::Ddp discriminator_ddp(*discriminator, group);
  torch::optim::Adam generator_optimizer(generator->parameters(), 2e-3);
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(), 2e-3);
  torch::manual_seed(100 + world.rank());  // a different random stream per rank

  auto generated = torch::empty({0});
  for (int step = 0; step < kSteps; ++step) {
    // Discriminator step. Real numbers have mean 3. One backward over both losses, one reduction.
    const auto real = 3 + 0.5 * torch::randn({kBatch, 1});
    generated = generator->forward(torch::randn({kBatch, 4}));
    discriminator_optimizer.zero_grad();
    (loss_of(discriminator->forward(real), true) +
     loss_of(discriminator->forward(generated.detach()), false))
        .backward();
    discriminator_optimizer.step();

    // Generator step: only the generator's gradients are averaged.
    generator_optimizer.zero_grad();
    {
      const auto pause = discriminator_ddp.no_sync();
      loss_of(discriminator->forward(generated), true).backward();
    }
    generator_optimizer.step();
  }

  lockstep::Mean mean;
  mean.add(generated.mean(), static_cast<double>(generated.numel()));
  lockstep::reduce(group, mean);
  if (world.rank() == 0)
    std::printf("mean of the generated numbers %.2f, of the real ones 3\n", mean.value());
  return mean.value() > 1.5 && mean.value() < 4.5 ? 0 : 1;
}
