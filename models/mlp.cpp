#include "models/mlp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

void check(const MlpOptions& options) {
  const auto& widths = options.widths;
  if (widths.size() >= 2 && std::ranges::all_of(widths, [](auto width) { return width > 0; })) {
    return;
  }
  throw UsageError(fmt::format(
      "Invalid MLP widths [{}]: give that of the input, then that of the output of each layer, all "
      "above 0, such as 784, 256, 10.",
      fmt::join(widths, ", ")));
}

}  // namespace

MlpImpl::MlpImpl(const MlpOptions& options) {
  check(options);
  torch::nn::ModuleList layers;
  for (std::size_t i = 1; i < options.widths.size(); ++i) {
    layers_.emplace_back(options.widths[i - 1], options.widths[i]);
    layers->push_back(layers_.back());
  }
  register_module("layers", layers);
}

at::Tensor MlpImpl::forward(const at::Tensor& input) {
  auto x = input.flatten(1);
  for (auto& layer : layers_) {
    x = layer->forward(x);
    if (&layer != &layers_.back()) x = torch::relu(x);
  }
  return x;
}

}  // namespace lockstep::models
