// Graphs of any shape: shared parameters, several forwards, nested backwards, two models, gradients
// of gradients. Every rank gets the mean of the gradients that each rank would have alone.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

class Graphs : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Graphs, ::testing::Values(1, 2, 3));

TEST_P(Graphs, SharedParametersAreReducedOnce) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    const auto second = weights({});
    second->register_parameter("tied", (*net)["a"]);
    net->register_module("second", second);
    Ddp ddp(*net, group);
    EXPECT_EQ(ddp.flat().parameters().size(), 2U);
    for (int step = 0; step < 2; ++step) {
      const auto used_twice = (*net)["a"] * (group.rank() + 1) + (*second)["tied"] * 10;
      (used_twice.sum() + loss_with((*net)["b"], 1)).backward();
      EXPECT_TRUE(is_filled((*net)["a"].grad(), 10 + mean_rank(group.size())));
      EXPECT_TRUE((*second)["tied"].grad().is_same((*net)["a"].grad()));
      net->zero_grad();
    }
  });
}

// One backward of `loss_of` on each of `size` ranks gives the mean of the ranks' own gradients.
void expect_serial_mean(int size, const std::function<at::Tensor(TestNet&, int rank)>& loss_of) {
  std::vector<Tensors> alone;
  for (int rank = 0; rank < size; ++rank) {
    TestNet net;
    fill(*net, 1);
    loss_of(net, rank).backward();
    alone.push_back(gradients_of(*net));
  }
  with_ddp_groups(size, [&](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group);
    loss_of(net, group.rank()).backward();
    EXPECT_TRUE(are_equal(gradients_of(*net), serial_mean(alone, size)));
  });
}

TEST_P(Graphs, SeveralForwardsBeforeOneBackwardAreOneGraph) {
  expect_serial_mean(GetParam(), [](TestNet& net, int rank) {
    const auto first = net->forward(batch_of(rank, 0));
    const auto second = net->forward(batch_of(rank, 1), /*with_branch=*/false);
    return (first * second).mean() + net->forward(batch_of(rank, 2)).square().mean();
  });
}

TEST_P(Graphs, GradientPenaltiesRunBackwardTwice) {
  expect_serial_mean(GetParam(), [](TestNet& net, int rank) {
    const auto x = batch_of(rank, 0).requires_grad_();
    const auto y = net->forward(x).square().sum();
    const auto slope = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true);
    return y + slope[0].square().sum();
  });
}

// Gradients in registered memory are not part of a graph, so create_graph must be refused.
TEST_P(Graphs, BackwardThatKeepsAGraphOfGradientsIsRefused) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a"});
    Ddp ddp(*net, group);
    const auto text =
        message_of([&] { (*net)["a"].square().sum().backward({}, /*retain_graph=*/true, true); });
    EXPECT_TRUE(holds(text, "create_graph"));
    EXPECT_TRUE(holds(text, "autograd::grad"));
    EXPECT_TRUE(holds(text, "parameter a"));
  });
}

TEST_P(Graphs, TwoBackwardsThroughOneGraphAddTwoMeans) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    const auto loss = loss_with((*net)["a"], group.rank() + 1) + loss_with((*net)["b"], 2);
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
    loss.backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 2 * mean_rank(group.size())));
    EXPECT_TRUE(is_filled((*net)["b"].grad(), 4));
  });
}

TEST_P(Graphs, TwoLossesAddUpWithAndWithoutAScope) {
  for (const bool scope : {false, true}) {
    with_ddp_groups(GetParam(), [scope](ProcessGroup& group) {
      const auto net = weights({"a", "b", "c"});
      Ddp ddp(*net, group);
      for (int step = 0; step < 2; ++step) {
        const auto shared = (*net)["a"] * (group.rank() + 1);
        const auto first = (shared + (*net)["b"]).sum();
        const auto second = (shared * 10 + (*net)["c"]).sum();
        if (scope) {
          const auto pause = ddp.no_sync();
          first.backward();
        } else {
          first.backward();
        }
        second.backward();
        EXPECT_TRUE(is_filled((*net)["a"].grad(), 11 * mean_rank(group.size())));
        EXPECT_TRUE(is_filled((*net)["b"].grad(), 1));
        EXPECT_TRUE(is_filled((*net)["c"].grad(), 1));
        net->zero_grad();
      }
    });
  }
}

TEST_P(Graphs, AGraphOlderThanTheDdpIsAveragedToo) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    const auto loss = loss_with((*net)["a"], group.rank() + 1) + loss_with((*net)["b"], 2);
    Ddp ddp(*net, group);
    loss.backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
    EXPECT_TRUE(is_filled((*net)["b"].grad(), 2));
  });
}

TEST_P(Graphs, TwoModelsCanBeInterleaved) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto left = weights({"a", "b"});
    const auto right = weights({"a", "b"});
    Ddp of_left(*left, group, {.bucket_bytes = 1});
    Ddp of_right(*right, group);
    for (int step = 0; step < 2; ++step) {
      const auto left_loss = loss_with((*left)["a"], group.rank() + 1);
      const auto right_loss = loss_with((*right)["b"], 10 * group.rank() + 10);
      right_loss.backward();
      left_loss.backward();
      EXPECT_TRUE(is_filled((*left)["a"].grad(), mean_rank(group.size())));
      EXPECT_TRUE(is_filled((*right)["b"].grad(), 10 * mean_rank(group.size())));
      left->zero_grad();
      right->zero_grad();
      // Both in one graph.
      (((*left)["a"] * 3 + (*right)["a"] * 4) * (group.rank() + 1) + (*left)["b"]).sum().backward();
      EXPECT_TRUE(is_filled((*left)["a"].grad(), 3 * mean_rank(group.size())));
      EXPECT_TRUE(is_filled((*left)["b"].grad(), 1));
      EXPECT_TRUE(is_filled((*right)["a"].grad(), 4 * mean_rank(group.size())));
      EXPECT_FALSE((*right)["b"].grad().defined());
      left->zero_grad();
      right->zero_grad();
    }
  });
}

}  // namespace
}  // namespace lockstep
