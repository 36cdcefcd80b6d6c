#include "models/resnet.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

std::int64_t count(torch::nn::Module& net) {
  std::int64_t sum = 0;
  for (const auto& parameter : net.parameters()) sum += parameter.numel();
  return sum;
}

TEST(ResNet18, HasTheParametersOfResNet18ForSmallImages) {
  EXPECT_EQ(count(*ResNet18()), 11'173'962);
  EXPECT_EQ(count(*ResNet18(ResNetOptions{.channels = 1})), 11'173'962 - 2 * 64 * 9);
  EXPECT_LT(count(*ResNet18(ResNetOptions{.width = 16})), 1'000'000);
}

TEST(ResNet18, AcceptsImagesOfBothSizes) {
  ResNet18 colour(ResNetOptions{.channels = 3, .classes = 7, .width = 4});
  EXPECT_EQ(colour->forward(torch::randn({2, 3, 32, 32})).sizes(),
            (std::vector<std::int64_t>{2, 7}));
  ResNet18 grey(ResNetOptions{.channels = 1, .classes = 10, .width = 4});
  EXPECT_EQ(grey->forward(torch::randn({2, 1, 28, 28})).sizes(),
            (std::vector<std::int64_t>{2, 10}));
}

TEST(ResNet18, LogitsOfAnImageDependOnNoOtherInEvaluation) {
  torch::manual_seed(1);
  ResNet18 net(ResNetOptions{.width = 4});
  const auto images = torch::randn({3, 3, 32, 32});
  net->eval();
  // Not bit-identical: kernels of other batch sizes may add in another order.
  EXPECT_TRUE(
      net->forward(images)[1].allclose(net->forward(images.narrow(0, 1, 1))[0], 1e-4, 1e-5));
}

TEST(ResNet18, RefusesSizesBelowOne) {
  EXPECT_THROW(ResNet18(ResNetOptions{.classes = 0}), UsageError);
}

}  // namespace
}  // namespace lockstep::models
