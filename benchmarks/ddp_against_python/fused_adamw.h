// AdamW through LibTorch's fused kernel, as torch.optim.AdamW(fused=True) calls it: the same bits,
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

  /// Steps every parameter that has a gradient.
  void step();
  /// Drops the gradients, as optimizers of PyTorch do by default.
  void zero_grad();

 private:
  struct Slot {
    at::Tensor parameter;
    at::Tensor mean, square;  // of the gradient, running
    at::Tensor steps;         // how many so far: fp32, as the kernel wants it
  };

  FusedAdamWOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace lockstep
