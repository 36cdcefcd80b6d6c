// Every rank says where it is, then takes one step of gradient descent to show that LibTorch works
// there. Start it plainly for one rank, with `lockstep run` for one a core or GPU, or under
// torchrun, srun or mpirun.
#include <torch/torch.h>

#include <cstdio>

#include "lockstep/lockstep.h"

int main() {
  const auto world = lockstep::init();
  if (world.rank() == 0) {
    std::printf("lockstep %s on LibTorch %s, %d GPUs here\n", lockstep::kVersion, TORCH_VERSION,
                static_cast<int>(torch::cuda::device_count()));
  }
  std::printf("rank %d of %d, local rank %d of %d on node %d, %d threads\n", world.rank(),
              world.size(), world.local_rank(), world.local_size(), world.node(),
              at::get_num_threads());

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

  std::printf("one step on the %s: loss %.3f, then %.3f\n", device == torch::kCUDA ? "GPU" : "CPU",
              before.item<double>(), after.item<double>());
  if (after.item<double>() >= before.item<double>()) {
    std::fprintf(stderr, "The loss did not fall: this LibTorch does not compute what it should.\n");
    return 1;
  }
  return 0;
}
