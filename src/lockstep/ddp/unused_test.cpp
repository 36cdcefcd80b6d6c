// Parameters that get no gradient, on some ranks or all, in some micro-batches or all: no option is
// needed, and `.grad` of a parameter that no rank used does not change.
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

TEST_P(Unused, OnAllRanksAStaleGradientDoesNotChange) {
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

TEST_P(Unused, AStaleGradientCountsWhenOtherRanksHaveANewOne) {
  const int size = GetParam();
  with_ddp_groups(size, [&](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    loss_with((*net)["b"], 3).backward();
    auto loss = loss_with((*net)["a"], 2);
    if (group.rank() == 0) loss = loss + loss_with((*net)["b"], 6);
    loss.backward();
    // 3 stays, as in a single process, and the mean of 6, 0, ... is added.
    EXPECT_TRUE(is_filled((*net)["b"].grad(), (3.0 * size + 6) / size));
  });
}

TEST_P(Unused, InTheLastMicroBatchEarlierGradientsAreStillAveraged) {
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

TEST_P(Unused, AGradientThatWasResetDoesNotComeBack) {
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

TEST_P(Unused, AnAssignedGradientTakesPart) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    for (int step = 0; step < 2; ++step) {
      (*net)["b"].mutable_grad() = torch::full({5}, group.rank() + 1.0, test_device());
      loss_with((*net)["a"], 1).backward();
      EXPECT_TRUE(is_filled((*net)["b"].grad(), mean_rank(group.size())));
      net->zero_grad();
    }
  });
}

TEST_P(Unused, FrozenParametersKeepTheirGradientAndTrainAgainLater) {
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
      EXPECT_TRUE(is_filled((*net)["b"].grad(), 2 * mean_rank(group.size()))) << "unchanged";
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

// Autograd still calls its node, because the graph was built before; the bucket must not count as
// complete too early.
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

// Passes gradients through; the second input gets an undefined one on request.
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

TEST_P(Unused, UndefinedGradientsFromAFunctionCountAsUnused) {
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

TEST_P(Unused, ParametersWithoutElementsAreSupported) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a"});
    net->register_parameter("empty", torch::empty({0, 3}, test_device()));
    net->register_parameter("b", torch::zeros({2}, test_device()));
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
