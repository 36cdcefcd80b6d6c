#include "models/mlp.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

TEST(Mlp, IsLinearLayersWithReluBetweenThem) {
  Mlp net(MlpOptions{.widths = {2, 2, 1}});
  const torch::NoGradGuard off;
  auto parameters = net->named_parameters();
  parameters["layers.0.weight"].copy_(torch::tensor({{1.0, 0.0}, {0.0, 1.0}}));
  parameters["layers.0.bias"].zero_();
  parameters["layers.1.weight"].copy_(torch::tensor({{1.0, 10.0}}));
  parameters["layers.1.bias"].fill_(-5);
  // ReLU sets the -2 to 0; the last layer has no ReLU, so its result stays negative.
  EXPECT_TRUE(net->forward(torch::tensor({{3.0, -2.0}, {-1.0, 1.0}}))
                  .equal(torch::tensor({{-2.0}, {5.0}})));
}

TEST(Mlp, AcceptsImages) {
  Mlp net(MlpOptions{.widths = {3 * 4 * 4, 7, 7, 5}});
  const auto images = torch::randn({6, 3, 4, 4});
  EXPECT_EQ(net->forward(images).sizes(), (std::vector<std::int64_t>{6, 5}));
  EXPECT_TRUE(net->forward(images).equal(net->forward(images.view({6, 48}))));
}

TEST(Mlp, NamesItsParametersByLayer) {
  Mlp net(MlpOptions{.widths = {4, 3, 2}});
  EXPECT_EQ(net->named_parameters().keys(),
            (std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                      "layers.1.bias"}));
}

TEST(Mlp, RefusesInvalidWidths) {
  for (const auto& widths : std::vector<std::vector<std::int64_t>>{{}, {4}, {4, 0}, {-1, 2}}) {
    EXPECT_THROW(Mlp(MlpOptions{widths}), UsageError);
  }
}

}  // namespace
}  // namespace lockstep::models
