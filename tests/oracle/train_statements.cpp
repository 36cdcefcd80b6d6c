// Prints the results of room train for numbers from standard input, for train_agreement.py to
// compare with Python. Numbers are hexadecimal floats, so that no bit is lost.
//   train_statements scaler INITIAL GROWTH BACKOFF INTERVAL   one line of gradients per step
//   train_statements sgd|adam|adamw                           first the parameters, then gradients
//   train_statements schedule JSON STEPS
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/grad_scaler.h"
#include "lockstep/train/schedule.h"
#include "lockstep/train/sgd.h"

namespace {

using namespace lockstep;

bool read_line(std::vector<float>& numbers) {
  std::string line;
  if (!std::getline(std::cin, line)) return false;
  numbers.clear();
  std::istringstream words(line);
  for (std::string word; words >> word;) numbers.push_back(std::strtof(word.c_str(), nullptr));
  return true;
}

void print_numbers(const at::Tensor& tensor) {
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    std::printf(" %a", static_cast<double>(tensor.const_data_ptr<float>()[i]));
  }
  std::printf("\n");
}

struct HolderImpl : torch::nn::Module {
  explicit HolderImpl(const at::Tensor& values) : weight(register_parameter("weight", values)) {}
  at::Tensor weight;
};

struct Counter {
  void step() { ++steps; }
  int steps = 0;
};

void scaler(const GradScalerOptions& options) {
  GradScaler scaler(options);
  Counter optimizer;
  for (std::vector<float> numbers; read_line(numbers);) {
    HolderImpl holder(torch::zeros({static_cast<std::int64_t>(numbers.size())}));
    holder.weight.mutable_grad() = torch::tensor(numbers);
    scaler.unscale({holder.weight});
    const bool stepped = scaler.step(optimizer);
    scaler.update();
    std::printf("%d %a", stepped ? 1 : 0, scaler.current_scale());
    print_numbers(holder.weight.grad());
  }
}

std::unique_ptr<FlatOptimizer> make(const std::string& kind, FlatParameters& flat) {
  if (kind == "adam") {
    return std::make_unique<Adam>(flat, AdamOptions{.lr = 0.01, .weight_decay = 0.1});
  }
  if (kind == "adamw") {
    return std::make_unique<AdamW>(flat, AdamWOptions{.lr = 0.01, .weight_decay = 0.1});
  }
  return std::make_unique<SGD>(
      flat, SGDOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
}

void optimizer(const std::string& kind) {
  std::vector<float> numbers;
  read_line(numbers);
  HolderImpl holder(torch::tensor(numbers));
  ProcessGroup group(World::alone());
  FlatParameters flat(holder, group);
  const auto optimizer = make(kind, flat);
  while (read_line(numbers)) {
    holder.weight.mutable_grad() = torch::tensor(numbers);
    optimizer->step();
    print_numbers(holder.weight.detach());
  }
}

}  // namespace

int main(int num_arguments, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + num_arguments);
  if (given.size() == 5 && given[0] == "scaler") {
    scaler({.initial_scale = std::stod(given[1]),
            .growth_factor = std::stod(given[2]),
            .backoff_factor = std::stod(given[3]),
            .growth_interval = std::stoll(given[4])});
  } else if (given.size() == 3 && given[0] == "schedule") {
    const auto schedule = schedule_from_json(given[1]);
    for (int step = 0; step < std::stoi(given[2]); ++step) std::printf("%a\n", schedule.at(step));
  } else if (given.size() == 1) {
    optimizer(given[0]);
  } else {
    std::fprintf(stderr, "usage: see the head of train_statements.cpp\n");
    return 2;
  }
  return 0;
}
