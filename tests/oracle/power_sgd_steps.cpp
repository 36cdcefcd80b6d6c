// power_sgd_steps FOLDER RANK…: one rank of lockstep that reduces given gradients for 20 steps with
// PowerSgd of each RANK, from a given Q, and writes FOLDER/<RANK>.<rank>.safetensors: its gradients
// and the results of every step, the first Q, and its error at the end.
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"
#include "write_tensors.h"

namespace {

using namespace lockstep;

constexpr int kSteps = 20;
constexpr int kPlainSteps = 2;  // Python's hook begins at step 2 at the earliest

// Two matrices of one shape, a convolution, a wide matrix, and parameters that are not compressed.
struct Parameters : torch::nn::Module {
  Parameters() {
    const std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes{
        {"first", {64, 48}}, {"second", {64, 48}}, {"convolution", {32, 16, 3, 3}},
        {"wide", {40, 200}}, {"small", {4, 4}},    {"bias", {64}}};
    for (const auto& [name, sizes] : shapes) register_parameter(name, torch::zeros(sizes));
  }
};

// A matrix of rank 6 that changes slowly, and noise: like gradients of consecutive steps.
at::Tensor gradient_of(const at::Tensor& parameter, int rank, int step, int number) {
  const auto rows = parameter.size(0);
  const auto columns = parameter.numel() / rows;
  const auto wave = [](std::int64_t count, double speed, double phase) {
    return (torch::arange(count, torch::kDouble).square() * speed + phase).sin();
  };
  auto sum =
      0.1 * wave(rows * columns, 0.37, 31.0 * step + 7.0 * rank + number).view({rows, columns});
  for (int i = 0; i < 6; ++i) {
    sum += std::pow(0.6, i) * wave(rows, 0.11 + 0.02 * i, 0.05 * step + number)
                                  .outer(wave(columns, 0.07 + 0.03 * i, 0.04 * step + 0.3 * rank));
  }
  return sum.to(torch::kFloat).view(parameter.sizes());
}

// One step without compression in other objects gives the shapes of Q.
void give_first_factors(PowerSgd& power, const ProcessGroup& group, int rank) {
  Parameters shapes;
  Ddp ddp(shapes, group, {.bucket_bytes = kOneBucket});
  const PowerSgd other({.rank = rank, .start_step = 0});
  ddp.set_hook(other.hook());
  at::Tensor loss = torch::zeros({});
  for (const auto& parameter : shapes.parameters()) loss = loss + parameter.sum();
  loss.backward();
  auto state = nlohmann::json::parse(other.state_json());
  state["step"] = kPlainSteps;
  power.load_state_json(state.dump());
  double phase = 1;
  for (const auto& [name, factors] : power.named_tensors()) {
    factors.copy_((torch::arange(factors.numel(), torch::kDouble).square() * 0.29 + phase)
                      .sin()
                      .view(factors.sizes()));
    phase += 1;
  }
}

void train(const ProcessGroup& group, int rank, const std::string& path) {
  Parameters net;
  PowerSgd power({.rank = rank, .start_step = kPlainSteps});
  give_first_factors(power, group, rank);
  NamedTensors found;
  for (const auto& [name, factors] : power.named_tensors()) {
    found.emplace_back("factors." + name, factors.clone());
  }
  Ddp ddp(net, group, {.bucket_bytes = kOneBucket});
  ddp.set_hook(power.hook());
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor loss = torch::zeros({});
    int number = 0;
    for (const auto& named : net.named_parameters()) {
      const auto gradient = gradient_of(named.value(), group.rank(), step, number++);
      found.emplace_back(fmt::format("gradient.{}.{}", step, named.key()), gradient);
      loss = loss + (named.value() * gradient).sum();
    }
    loss.backward();
    for (const auto& named : net.named_parameters()) {
      found.emplace_back(fmt::format("result.{}.{}", step, named.key()),
                         named.value().grad().clone());
    }
    net.zero_grad();
  }
  for (const auto& [name, error] : power.rank_tensors()) found.emplace_back("error." + name, error);
  write_tensors(path, found);
}

}  // namespace

int main(int num_arguments, char** arguments) {
  const auto world = init();
  if (num_arguments < 3) {
    std::fputs("usage: power_sgd_steps FOLDER RANK...\n", stderr);
    return 2;
  }
  ProcessGroup group(world);
  for (int i = 2; i < num_arguments; ++i) {
    train(group, std::atoi(arguments[i]),
          fmt::format("{}/{}.{}.safetensors", arguments[1], arguments[i], group.rank()));
  }
  group.barrier().wait();
  return 0;
}
