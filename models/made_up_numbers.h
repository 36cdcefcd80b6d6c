// Weights and data that are bit-identical in C++ and Python without a file: sines of an element's
// number, by the same LibTorch kernels. The Python side is in_python.py. For tests and benchmarks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

namespace lockstep::models {

/// Sets every parameter of `model` to values that keep logits near one.
void fill(torch::nn::Module& model);

/// The data of step `step`; it differs per step.
at::Tensor made_up_tokens(std::int64_t batch, std::int64_t length, std::int64_t vocabulary,
                          std::int64_t step = 0);
at::Tensor made_up_numbers(const std::vector<std::int64_t>& shape, std::int64_t step = 0);
at::Tensor made_up_classes(std::int64_t batch, std::int64_t classes, std::int64_t step = 0);

}  // namespace lockstep::models
