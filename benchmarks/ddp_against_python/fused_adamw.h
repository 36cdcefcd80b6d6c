// AdamW through LibTorch's fused kernel, as torch.optim.AdamW(fused=True) calls it: bit-identical,
// and the same cost on both sides of a comparison.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

namespace lockstep {

struct FusedAdamWOptions {
  double lr = 1e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

class FusedAdamW {
 public:
  explicit FusedAdamW(std::vector<at::Tensor> parameters, const FusedAdamWOptions& options = {});

  /// Updates every parameter that has a gradient.
  void step();
  /// Sets the gradients to undefined, as optimizers of PyTorch do by default.
  void zero_grad();

 private:
  struct Slot {
    at::Tensor parameter;
    at::Tensor mean, square;  // running averages of the gradient and of its square
    at::Tensor steps;         // number of steps so far; fp32, as the kernel expects
  };

  FusedAdamWOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace lockstep
