#include "models/made_up_numbers.h"

#include <torch/torch.h>

#include <cmath>

namespace lockstep::models {
namespace {

at::Tensor waves(std::int64_t count, double step, double begin) {
  return torch::sin(torch::arange(count, torch::kDouble) * step + begin);
}

}  // namespace

void fill(torch::nn::Module& model) {
  const torch::NoGradGuard off;
  double number = 0;
  for (auto& named : model.named_parameters()) {
    auto& weight = named.value();
    const auto made = waves(weight.numel(), 0.7, number).view(weight.sizes());
    number += 1;
    if (weight.dim() > 1) {
      const auto inputs = static_cast<double>(weight.numel() / weight.size(0));
      weight.copy_(made / std::pow(inputs, 0.5));
    } else {
      weight.copy_(made * 0.1 + (named.key().ends_with("bias") ? 0.0 : 1.0));
    }
  }
}

at::Tensor made_up_tokens(std::int64_t batch, std::int64_t length, std::int64_t vocabulary,
                          std::int64_t step) {
  return ((torch::arange(batch * length) + 1000 * step) * 7919)
      .remainder(10007)
      .remainder(vocabulary)
      .view({batch, length});
}

at::Tensor made_up_numbers(const std::vector<std::int64_t>& shape, std::int64_t step) {
  return waves(c10::multiply_integers(shape), 0.9, static_cast<double>(step))
      .to(torch::kFloat)
      .view(shape);
}

at::Tensor made_up_classes(std::int64_t batch, std::int64_t classes, std::int64_t step) {
  return (torch::arange(batch) * 3 + step).remainder(classes);
}

}  // namespace lockstep::models
