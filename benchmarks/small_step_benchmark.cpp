// A training step so small that the overhead around the arithmetic dominates: an MLP of four
// Linear(32, 32) with ReLU, MSE, a batch of 32, AdamW, one rank.
//   small_step_benchmark lockstep|torch_optim|none
// `none` makes no optimizer step: the time of forward and backward. Reads numbers of steps from
// standard input and prints the seconds that each took, so that
// benchmarks/small_step_against_python can run processes in turns.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/train/adam.h"

namespace {

constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kBatch = 32;

struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    for (int i = 0; i < 4; ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = torch::relu(layer(x));
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Mlp);

// The end of a step, after the gradients are computed.
using Finish = std::function<void()>;

}  // namespace

int main(int num_arguments, char** arguments) {
  const std::string way = num_arguments > 1 ? arguments[1] : "";
  if (way != "lockstep" && way != "torch_optim" && way != "none") {
    std::fprintf(stderr, "usage: small_step_benchmark lockstep|torch_optim|none\n");
    return 2;
  }
  at::set_num_threads(1);
  torch::manual_seed(1);
  Mlp net;
  const auto input = torch::randn({kBatch, kWidth});
  const auto target = torch::randn({kBatch, kWidth});
  lockstep::ProcessGroup group(lockstep::World::alone());
  std::unique_ptr<lockstep::FlatParameters> flat;
  std::unique_ptr<lockstep::AdamW> ours;
  std::unique_ptr<torch::optim::AdamW> theirs;
  Finish finish;
  if (way == "lockstep") {
    flat = std::make_unique<lockstep::FlatParameters>(*net, group);
    ours = std::make_unique<lockstep::AdamW>(*flat);
    finish = [&] {
      ours->step();
      ours->zero_grad();
    };
  } else if (way == "none") {
    finish = [&] { net->zero_grad(); };
  } else {
    theirs = std::make_unique<torch::optim::AdamW>(net->parameters());
    finish = [&] {
      theirs->step();
      theirs->zero_grad();
    };
  }
  at::Tensor loss;
  for (int steps = 0; std::cin >> steps;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
      loss = torch::mse_loss(net->forward(input), target);
      loss.backward();
      finish();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.9f %.9g\n", took.count(), loss.item<double>());
    std::fflush(stdout);
  }
}
