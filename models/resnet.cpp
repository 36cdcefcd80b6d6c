#include "models/resnet.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

const ResNetOptions& checked(const ResNetOptions& o) {
  if (std::min({o.channels, o.classes, o.width}) < 1) {
    throw UsageError(
        fmt::format("Invalid ResNet: {} channels, {} classes, width {}. All must be above 0.",
                    o.channels, o.classes, o.width));
  }
  return o;
}

// A square convolution that keeps the size at stride 1, without bias: the norm after it has one.
torch::nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t side,
                              std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(inputs, outputs, side).stride(stride).padding(side / 2).bias(false));
}

torch::nn::Sequential stage(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  return torch::nn::Sequential(ResNetBlock(inputs, outputs, stride),
                               ResNetBlock(outputs, outputs, 1));
}

}  // namespace

ResNetBlockImpl::ResNetBlockImpl(std::int64_t inputs, std::int64_t outputs, std::int64_t stride)
    : conv1_(register_module("conv1", convolution(inputs, outputs, 3, stride))),
      bn1_(register_module("bn1", torch::nn::BatchNorm2d(outputs))),
      conv2_(register_module("conv2", convolution(outputs, outputs, 3, 1))),
      bn2_(register_module("bn2", torch::nn::BatchNorm2d(outputs))),
      downsample_(nullptr) {
  if (stride == 1 && inputs == outputs) return;
  downsample_ =
      register_module("downsample", torch::nn::Sequential(convolution(inputs, outputs, 1, stride),
                                                          torch::nn::BatchNorm2d(outputs)));
}

at::Tensor ResNetBlockImpl::forward(const at::Tensor& x) {
  const auto changed = bn2_(conv2_(torch::relu(bn1_(conv1_(x)))));
  return torch::relu(changed + (downsample_.is_empty() ? x : downsample_->forward(x)));
}

ResNet18Impl::ResNet18Impl(const ResNetOptions& options)
    : conv1_(register_module("conv1", convolution(checked(options).channels, options.width, 3, 1))),
      bn1_(register_module("bn1", torch::nn::BatchNorm2d(options.width))),
      layer1_(register_module("layer1", stage(options.width, options.width, 1))),
      layer2_(register_module("layer2", stage(options.width, 2 * options.width, 2))),
      layer3_(register_module("layer3", stage(2 * options.width, 4 * options.width, 2))),
      layer4_(register_module("layer4", stage(4 * options.width, 8 * options.width, 2))),
      fc_(register_module("fc", torch::nn::Linear(8 * options.width, options.classes))) {
  for (auto& module : modules(/*include_self=*/false)) {
    if (auto* convolution = module->as<torch::nn::Conv2dImpl>()) {
      torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
}

at::Tensor ResNet18Impl::forward(const at::Tensor& images) {
  auto x = torch::relu(bn1_(conv1_(images)));
  for (auto each : {layer1_, layer2_, layer3_, layer4_}) x = each->forward(x);
  return fc_(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

}  // namespace lockstep::models
