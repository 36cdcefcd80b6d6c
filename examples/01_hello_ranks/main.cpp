// Loads LibTorch, says what it found on this machine, and takes one step of gradient descent to
// show that it works. Start here: if this prints its last line, everything else can be built on it.
#include <torch/torch.h>

#include <cstdio>
#include <thread>

#include "lockstep/lockstep.h"

int main() {
  std::printf("lockstep %s on LibTorch %s\n", lockstep::kVersion, TORCH_VERSION);
  std::printf("  cores    %u, LibTorch uses %d\n", std::thread::hardware_concurrency(),
              at::get_num_threads());
  std::printf("  GPUs     %d\n", static_cast<int>(torch::cuda::device_count()));

  torch::manual_seed(1);
  const auto device = torch::cuda::is_available() ? torch::kCUDA : torch::kCPU;
  torch::nn::Linear model(8, 1);
  model->to(device);
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);
  const auto data = torch::randn({64, 8}, device);
  const auto target = data.sum(1, /*keepdim=*/true);

  const auto before = torch::mse_loss(model->forward(data), target);
  before.backward();
  optimizer.step();
  const auto after = torch::mse_loss(model->forward(data), target);

  std::printf("  one step on the %s: loss %.3f, then %.3f\n",
              device == torch::kCUDA ? "GPU" : "CPU", before.item<double>(), after.item<double>());
  if (after.item<double>() >= before.item<double>()) {
    std::fprintf(stderr, "The loss did not fall: this LibTorch does not compute what it should.\n");
    return 1;
  }
  std::printf("LibTorch works here.\n");
  return 0;
}
