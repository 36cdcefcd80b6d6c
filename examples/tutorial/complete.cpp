// docs/tutorial.md explains this program and the changes from one file of this folder to the next.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>

#include "lockstep/lockstep.h"

int main() {
  const auto world = lockstep::init();
  const lockstep::ProcessGroup group(world);
  torch::manual_seed(1);
  const auto inputs = torch::randn({4800, 4});
  const auto targets = inputs.sin().sum(1, /*keepdim=*/true);
  const lockstep::TensorDataset data({{"input", inputs}, {"target", targets}});
  lockstep::Loader loader(
      data, {.batch = lockstep::derive_batch_sizes({.world = world.size(), .global = 48}),
             .rank = world.rank()});
  torch::nn::Sequential net(torch::nn::Linear(4, 256), torch::nn::Tanh(),
                            torch::nn::Linear(256, 1));
  const lockstep::Ddp ddp(*net, group);
  torch::optim::AdamW optimizer(net->parameters(), 3e-3);

  lockstep::Run run(world, "runs/tutorial", {.save_every = 100, .data_id = data.id()});
  run.track("model", net);
  run.track("optimizer", optimizer);
  run.track("loader", loader);
  run.resume();
  for (std::int64_t step = run.step() + 1; step <= 400; ++step) {
    const auto batch = loader.next();
    const auto loss = torch::mse_loss(net->forward(batch.input()), batch.target());
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    if (step % 100 == 0 && world.rank() == 0) {
      const double mean = torch::mse_loss(net->forward(inputs), targets).item<double>();
      std::printf("step %ld: loss over all samples %.6f\n", step, mean);
      const std::chrono::duration<double, std::micro> exposed = ddp.record().exposed;
      std::printf("  waited %.0f us for gradients in this step, %.1f %% of the time for data\n",
                  exposed.count(), 100 * loader.times().wait_fraction());
    }
    if (run.end_of_step()) return 0;
  }
  run.finish();
}
