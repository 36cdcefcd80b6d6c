// training_start FILE SEED: writes the initial weights of a small GPT with that seed to FILE, as
// the trainer uses them. Then reads lines "size epoch" and prints the order of each epoch.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "lockstep/data/order.h"
#include "lockstep/train/seeds.h"
#include "models/gpt.h"
#include "write_tensors.h"

int main(int num_arguments, char** arguments) {
  if (num_arguments != 3) {
    std::fputs("usage: training_start FILE SEED\n", stderr);
    return 2;
  }
  using namespace lockstep;
  const auto seed = std::strtoull(arguments[2], nullptr, 10);
  Seeds(seed).begin_shared("weights");
  models::Gpt net(
      models::GptOptions{.vocabulary = 60, .context = 16, .layers = 2, .heads = 4, .width = 32});
  NamedTensors weights;
  for (const auto& named : net->named_parameters())
    weights.emplace_back(named.key(), named.value());
  write_tensors(arguments[1], weights);

  for (std::int64_t size = 0, epoch = 0; std::cin >> size >> epoch;) {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(size));
    Order(size, {.seed = seed}).epoch(epoch).fill(0, samples);
    for (const auto sample : samples) std::cout << sample << ' ';
    std::cout << '\n';
  }
  return 0;
}
