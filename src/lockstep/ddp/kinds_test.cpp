// Parameters of every kind: complex, channels-last, sparse gradients, several dtypes in one model.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

class Kinds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Kinds, ::testing::Values(1, 2, 3));

TEST_P(Kinds, ComplexGradientsAreAveragedInBothParts) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"real"});
    net->register_parameter("complex", torch::zeros({3, 2}, on_device(torch::kComplexFloat)));
    Ddp ddp(*net, group);
    for (int step = 0; step < 2; ++step) {
      const auto parts = torch::view_as_real((*net)["complex"]);
      const auto loss =
          parts.select(-1, 0).sum() * (group.rank() + 1) + parts.select(-1, 1).sum() * 5;
      (loss + loss_with((*net)["real"], 1)).backward();
      const auto gradient = torch::view_as_real((*net)["complex"].grad());
      EXPECT_TRUE(is_filled(gradient.select(-1, 0), mean_rank(group.size())));
      EXPECT_TRUE(is_filled(gradient.select(-1, 1), 5));
      EXPECT_TRUE(is_filled((*net)["real"].grad(), 1));
      net->zero_grad();
    }
  });
}

TEST_P(Kinds, ChannelsLastIsKeptAndIsBitIdentical) {
  const int size = GetParam();
  const auto make = [] {
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(3, 4, 3).padding(1));
    fill(*net, 1);
    net->weight.set_data(net->weight.to(at::MemoryFormat::ChannelsLast));
    return net;
  };
  const auto image = [](int rank) {
    return batch_of(rank, 0, 3 * 5, 5).reshape({1, 3, 5, 5}).to(at::MemoryFormat::ChannelsLast);
  };
  std::vector<std::vector<at::Tensor>> alone;
  for (int rank = 0; rank < size; ++rank) {
    auto net = make();
    net->forward(image(rank)).square().sum().backward();
    alone.push_back(gradients_of(*net));
  }
  with_ddp_groups(size, [&](ProcessGroup& group) {
    auto net = make();
    Ddp ddp(*net, group);
    net->forward(image(group.rank())).square().sum().backward();
    EXPECT_TRUE(net->weight.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_EQ(net->weight.grad().strides(), net->weight.strides());
    EXPECT_TRUE(are_equal(gradients_of(*net), serial_mean(alone, size)));
  });
}

TEST_P(Kinds, SparseGradientsAreAveragedDense) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(6, 2).sparse(true));
    net->to(test_device());
    Ddp ddp(*net, group);
    for (int step = 0; step < 2; ++step) {
      // Row 0 twice on every rank; row rank + 1 on one rank.
      const auto rows = torch::tensor({0, 0, group.rank() + 1}, test_device());
      net->forward(rows).sum().backward();
      auto expected = torch::zeros({6, 2}, test_device());
      expected[0].fill_(2);
      for (int rank = 0; rank < group.size(); ++rank) expected[rank + 1].fill_(1.0 / group.size());
      EXPECT_TRUE(torch::equal(net->weight.grad(), expected));
      net->zero_grad();
    }
  });
}

TEST_P(Kinds, SeveralDtypesAreReducedInOneModel) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"single"});
    net->register_parameter("double", torch::zeros({7}, on_device(torch::kDouble)));
    net->register_parameter("brain", torch::zeros({9}, on_device(torch::kBFloat16)));
    net->register_parameter("half", torch::zeros({3}, on_device(torch::kHalf)));
    Ddp ddp(*net, group, {.bucket_bytes = 8});
    EXPECT_EQ(ddp.flat().num_segments(), 4);
    for (int step = 0; step < 2; ++step) {
      at::Tensor loss = torch::zeros({}, on_device(torch::kDouble));
      for (const auto& parameter : net->parameters()) {
        loss = loss + (parameter * (group.rank() + 1)).sum().to(torch::kDouble);
      }
      // A value that float32 does not represent.
      loss = loss + ((*net)["double"] * 1e-12 * (group.rank() + 1)).sum();
      loss.backward();
      for (const auto* name : {"single", "brain", "half"}) {
        EXPECT_TRUE(is_filled((*net)[name].grad(), mean_rank(group.size()))) << name;
      }
      EXPECT_NEAR((*net)["double"].grad()[0].item<double>() / mean_rank(group.size()), 1 + 1e-12,
                  1e-15);
      net->zero_grad();
    }
  });
}

TEST_P(Kinds, UserHooksOnParametersStillRun) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a"});
    (*net)["a"].register_hook([](const at::Tensor& gradient) { return gradient * 3; });
    Ddp ddp(*net, group);
    loss_with((*net)["a"], group.rank() + 1).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 3 * mean_rank(group.size())));
  });
}

}  // namespace
}  // namespace lockstep
