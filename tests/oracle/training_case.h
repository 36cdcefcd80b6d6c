// A training case that lockstep and Python both run: a model with made-up weights, made-up data per
// step and rank, an optimizer. The other side is ddp_training.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct TrainingCase {
  std::shared_ptr<torch::nn::Module> model;
  std::function<at::Tensor(std::int64_t)> loss;  // forward over the batch with that number
  std::function<void()> step;                    // of the optimizer
  /// Makes `step` one of an optimizer over these tensors instead of the model's parameters.
  std::function<void(TrainingCase&, const std::vector<at::Tensor>&)> optimize;
};

/// `name` is a model and an optimizer: mlp, conv, resnet, transformer, gpt or integers
/// (an MLP of integers), a dash, sgd or adamw.
/// Throws UsageError for another name.
[[nodiscard]] TrainingCase make_training_case(const std::string& name);

}  // namespace lockstep
