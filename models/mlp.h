// A multilayer perceptron: Linear layers of any widths with ReLU between them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

namespace lockstep::models {

struct MlpOptions {
  std::vector<std::int64_t> widths;  // of the input, then of the output of each layer
};

/// Parameters have the names layers.0.weight, layers.0.bias, layers.1.weight, … and the initial
/// values of torch::nn::Linear.
class MlpImpl : public torch::nn::Module {
 public:
  /// Throws UsageError for fewer than two widths, and for a width below 1.
  explicit MlpImpl(const MlpOptions& options);

  /// Logits of shape (batch, last width). Flattens each sample of `input`, so that it may be an
  /// image.
  at::Tensor forward(const at::Tensor& input);

 private:
  std::vector<torch::nn::Linear> layers_;
};
TORCH_MODULE(Mlp);

}  // namespace lockstep::models
