#include "fused_adamw.h"

#include <torch/torch.h>

namespace lockstep {

FusedAdamW::FusedAdamW(std::vector<at::Tensor> parameters, const FusedAdamWOptions& options)
    : options_(options) {
  const torch::NoGradGuard off;
  for (auto& parameter : parameters) {
    slots_.push_back({parameter, torch::zeros_like(parameter), torch::zeros_like(parameter),
                      torch::zeros({}, torch::kFloat)});
  }
}

void FusedAdamW::step() {
  const torch::NoGradGuard off;
  const auto [beta1, beta2] = options_.betas;
  std::vector<at::Tensor> parameters, gradients, means, squares, steps;
  for (auto& slot : slots_) {
    if (!slot.parameter.grad().defined()) continue;
    parameters.push_back(slot.parameter);
    gradients.push_back(slot.parameter.grad());
    means.push_back(slot.mean);
    squares.push_back(slot.square);
    steps.push_back(slot.steps);
  }
  if (parameters.empty()) return;
  at::_foreach_add_(steps, 1);
  at::_fused_adamw_(parameters, gradients, means, squares, /*max_exp_avg_sqs=*/{}, steps,
                    options_.lr, beta1, beta2, options_.weight_decay, options_.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

void FusedAdamW::zero_grad() {
  for (auto& slot : slots_) slot.parameter.mutable_grad().reset();
}

}  // namespace lockstep
