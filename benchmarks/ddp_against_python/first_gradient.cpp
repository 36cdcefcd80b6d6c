// A rank of a minimal training: from the start of the process to the first averaged gradient.
//   first_gradient FOLDER        started by start_up.py under lockstep run
// Writes the time at which the gradient is complete, and its norm, to FOLDER/<rank>.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <string>

#include "lockstep/lockstep.h"
#include "models/made_up_numbers.h"
#include "models/mlp.h"

int main(int num_arguments, char** arguments) {
  const auto world = lockstep::init();
  if (num_arguments != 2) {
    std::fputs("usage: first_gradient FOLDER\n", stderr);
    return 2;
  }
  namespace models = lockstep::models;
  models::Mlp net(models::MlpOptions{.widths = {32, 32, 10}});
  models::fill(*net);
  lockstep::ProcessGroup group(world);
  lockstep::Ddp ddp(*net, group);
  torch::cross_entropy_loss(net->forward(models::made_up_numbers({8, 32}, world.rank())),
                            models::made_up_classes(8, 10, world.rank()))
      .backward();
  // Python's time.monotonic() reads the same clock.
  const std::chrono::duration<double> clock = std::chrono::steady_clock::now().time_since_epoch();
  const auto norm = net->named_parameters()["layers.0.weight"].grad().norm().item<double>();
  std::ofstream file(std::string(arguments[1]) + "/" + std::to_string(world.rank()));
  file << std::fixed << std::setprecision(6) << clock.count() << ' ' << norm << '\n';
  return file.flush() ? 0 : 1;
}
