// Applies a Linear layer as PyTorch does in Python. LibTorch's C++ forward adds the bias in a
// separate pass for inputs of more than two dimensions: it is slower, and not bit-identical to
// Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/linear.h>
#include <torch/nn/modules/linear.h>

namespace lockstep::models {

inline at::Tensor affine(const torch::nn::Linear& layer, const at::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

}  // namespace lockstep::models
