// A Linear layer applied as Python applies it. LibTorch's own forward, given more than two
// dimensions, adds the bias in a pass of its own: slower, and other bits than Python's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/linear.h>
#include <torch/nn/modules/linear.h>

namespace lockstep::models {

inline at::Tensor affine(const torch::nn::Linear& layer, const at::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

}  // namespace lockstep::models
