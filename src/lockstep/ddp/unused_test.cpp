// Parameters that get no gradient, on some ranks or all, in some micro-steps or all: none needs a
// flag, and what nobody used keeps what it had.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

class Unused : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Unused, ::testing::Values(1, 2, 3));

TEST_P(Unused, OnAllRanksTheGradientStaysUndefined) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group);
    for (int step = 0; step < 3; ++step) {
      (loss_with((*net)["a"], group.rank() + 1) + loss_with((*net)["c"], 4)).backward();
      EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
      EXPECT_FALSE((*net)["b"].grad().defined());
      EXPECT_TRUE(is_filled((*net)["c"].grad(), 4));
      net->zero_grad();
    }
  });
}

TEST_P(Unused, OnAllRanksAnOldGradientKeepsItsBits) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"}, 60);
    const auto x = batch_of(group.rank(), 3, 1, 60).reshape({60});
    Ddp ddp(*net, group);
    for (int step = 0; step < 4; ++step) {
      ((*net)["b"] * x).sum().backward();
      const auto old = (*net)["b"].grad().clone();
      for (int again = 0; again < 3; ++again) {
        ((*net)["a"] * x).sum().backward();
        EXPECT_TRUE(torch::equal((*net)["b"].grad(), old)) << step << " " << again;
      }
      net->zero_grad();
    }
  });
}

TEST_P(Unused, OnSomeRanksTheOthersGradientIsAveragedWithZeros) {
  const int size = GetParam();
  for (const std::size_t bucket_bytes : {1UL, kDefaultBucketBytes}) {
    with_ddp_groups(size, [&](ProcessGroup& group) {
      const auto net = weights({"a", "b", "c"});
      Ddp ddp(*net, group, {.bucket_bytes = bucket_bytes});
      for (int step = 0; step < 2 * size; ++step) {
        auto loss = loss_with((*net)["a"], 2);
        if (group.rank() == step % size) loss = loss + loss_with((*net)["b"], 6);
        loss.backward();
        EXPECT_TRUE(is_filled((*net)["a"].grad(), 2));
        EXPECT_TRUE(is_filled((*net)["b"].grad(), 6.0 / size));
        EXPECT_FALSE((*net)["c"].grad().defined());
        net->zero_grad();
      }
    });
  }
}

TEST_P(Unused, AnOldGradientCountsWhereOthersHaveANewOne) {
  const int size = GetParam();
  with_ddp_groups(size, [&](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    loss_with((*net)["b"], 3).backward();
    auto loss = loss_with((*net)["a"], 2);
    if (group.rank() == 0) loss = loss + loss_with((*net)["b"], 6);
    loss.backward();
    // 3 stays, as it does without ranks, and the mean of 6, 0, ... comes to it.
    EXPECT_TRUE(is_filled((*net)["b"].grad(), (3.0 * size + 6) / size));
  });
}

TEST_P(Unused, InTheLastMicroStepEarlierGradientsAreStillAveraged) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group);
    for (int step = 0; step < 2; ++step) {
      {
        const auto pause = ddp.no_sync();
        loss_with((*net)["b"], group.rank() + 1).backward();
        if (group.rank() == 0) loss_with((*net)["c"], 12).backward();
      }
      loss_with((*net)["a"], 1).backward();
      EXPECT_TRUE(is_filled((*net)["b"].grad(), mean_rank(group.size())));
      EXPECT_TRUE(is_filled((*net)["c"].grad(), 12.0 / group.size()));
      net->zero_grad();
    }
  });
}

TEST_P(Unused, AGradientThatWasDroppedDoesNotComeBack) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    {
      const auto pause = ddp.no_sync();
      loss_with((*net)["b"], group.rank() + 1).backward();
    }
    net->zero_grad();
    loss_with((*net)["a"], 1).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 1));
    EXPECT_FALSE((*net)["b"].grad().defined());
  });
}

TEST_P(Unused, AGradientAssignedByHandTakesPart) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    for (int step = 0; step < 2; ++step) {
      (*net)["b"].mutable_grad() = torch::full({5}, group.rank() + 1.0);
      loss_with((*net)["a"], 1).backward();
      EXPECT_TRUE(is_filled((*net)["b"].grad(), mean_rank(group.size())));
      net->zero_grad();
    }
  });
}

TEST_P(Unused, FrozenParametersKeepWhatTheyHaveAndTrainAgainLater) {
  for (const std::size_t bucket_bytes : {1UL, kDefaultBucketBytes}) {
    with_ddp_groups(GetParam(), [&](ProcessGroup& group) {
      const auto net = weights({"a", "b"});
      Ddp ddp(*net, group, {.bucket_bytes = bucket_bytes});
      const auto step = [&] {
        (loss_with((*net)["a"], group.rank() + 1) + loss_with((*net)["b"], 2 * group.rank() + 2))
            .backward();
        EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
      };
      step();
      (*net)["a"].mutable_grad() = at::Tensor();
      (*net)["b"].requires_grad_(false);
      step();
      EXPECT_TRUE(is_filled((*net)["b"].grad(), 2 * mean_rank(group.size()))) << "the old one";
      net->zero_grad();
      step();
      EXPECT_FALSE((*net)["b"].grad().defined());
      (*net)["b"].requires_grad_(true);
      net->zero_grad();
      step();
      EXPECT_TRUE(is_filled((*net)["b"].grad(), 2 * mean_rank(group.size())));
    });
  }
}

TEST_P(Unused, ParametersFrozenFromTheStartCanTrainLater) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    (*net)["b"].requires_grad_(false);
    Ddp ddp(*net, group);
    for (const bool trains : {false, true, false, true, true}) {
      (*net)["b"].requires_grad_(trains);
      (loss_with((*net)["a"], 1) + loss_with((*net)["b"], group.rank() + 1)).backward();
      EXPECT_TRUE(is_filled((*net)["a"].grad(), 1));
      EXPECT_EQ((*net)["b"].grad().defined(), trains);
      if (trains) {
        EXPECT_TRUE(is_filled((*net)["b"].grad(), mean_rank(group.size())));
      }
      net->zero_grad();
    }
  });
}

// Autograd still comes by, since the graph is older; bucket mates must not be taken for complete.
TEST_P(Unused, AParameterFrozenAfterForwardDoesNotDisturbItsBucket) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    for (int step = 0; step < 2; ++step) {
      const auto first = loss_with((*net)["a"], group.rank() + 1);
      const auto loss = first + loss_with((*net)["b"], 5);
      (*net)["b"].requires_grad_(false);
      loss.backward();
      EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
      EXPECT_FALSE((*net)["b"].grad().defined());
      (*net)["b"].requires_grad_(true);
      net->zero_grad();
    }
  });
}

// Hands on gradients, but for the second input none where told so.
struct GradientOrNone : torch::autograd::Function<GradientOrNone> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& first,
                            const at::Tensor& second, bool none) {
    context->saved_data["none"] = none;
    return first + second;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const bool none = context->saved_data["none"].toBool();
    return {gradients[0], none ? at::Tensor() : gradients[0], at::Tensor()};
  }
};

TEST_P(Unused, UndefinedGradientsFromAFunctionAreNone) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    const auto step = [&](bool none) {
      GradientOrNone::apply((*net)["a"], (*net)["b"], none).sum().backward();
      EXPECT_TRUE(is_filled((*net)["a"].grad(), 1));
    };
    step(true);
    EXPECT_FALSE((*net)["b"].grad().defined());
    net->zero_grad();
    step(group.rank() != 0);
    EXPECT_TRUE(is_filled((*net)["b"].grad(), static_cast<float>(1.0 / group.size())));
  });
}

TEST_P(Unused, ParametersWithoutElementsAreNoTrouble) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a"});
    net->register_parameter("empty", torch::empty({0, 3}));
    net->register_parameter("b", torch::zeros({2}));
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    for (int step = 0; step < 2; ++step) {
      auto loss = loss_with((*net)["a"], 1) + loss_with((*net)["b"], group.rank() + 1);
      if (step == 1) loss = loss + (*net)["empty"].sum();
      loss.backward();
      EXPECT_TRUE(is_filled((*net)["b"].grad(), mean_rank(group.size())));
      net->zero_grad();
    }
  });
}

}  // namespace
}  // namespace lockstep
