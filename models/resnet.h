// ResNet-18 for small images, 28×28 or 32×32: the first convolution is 3×3 with stride 1 and
// without pooling, so that the last stage has 4×4 positions. Parameters and buffers have
// torchvision's names.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace lockstep::models {

struct ResNetOptions {
  std::int64_t channels = 3;  // of the images: 1 for gray ones
  std::int64_t classes = 10;
  std::int64_t width = 64;  // channels of the first stage; 11 M parameters, 0.7 M with 16
};

/// Two convolutions with a shortcut, which is a convolution where shapes change.
class ResNetBlockImpl : public torch::nn::Module {
 public:
  ResNetBlockImpl(std::int64_t inputs, std::int64_t outputs, std::int64_t stride);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Sequential downsample_;  // null where shapes do not change
};
TORCH_MODULE(ResNetBlock);

class ResNet18Impl : public torch::nn::Module {
 public:
  /// Initializes convolutions as torchvision does: Kaiming normal, fan-out. Throws UsageError for
  /// sizes below 1.
  explicit ResNet18Impl(const ResNetOptions& options = {});

  /// Logits of shape (batch, classes) for images of shape (batch, channels, height, width).
  at::Tensor forward(const at::Tensor& images);

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Sequential layer1_, layer2_, layer3_, layer4_;
  torch::nn::Linear fc_;
};
TORCH_MODULE(ResNet18);

}  // namespace lockstep::models
