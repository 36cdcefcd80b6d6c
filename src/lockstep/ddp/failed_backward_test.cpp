// A backward that throws: the model, the group and the next step stay usable.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

struct Case {
  int size = 1;
  std::size_t bucket_bytes = 1;
};

class FailedBackward : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(RanksAndBuckets, FailedBackward,
                         ::testing::Values(Case{1, 1}, Case{2, 1}, Case{2, kDefaultBucketBytes},
                                           Case{3, 1}));

at::Tensor loss_of(const WeightsImpl& net, int rank) {
  return (net["a"] * 2 + net["b"]).sum() * (rank + 1) + loss_with(net["c"], rank + 1);
}

// The gradients of `b` and `c` arrive in one graph; `a` would follow, but the backward throws
// before it.
void fail(const WeightsImpl& net, int rank) {
  const auto doubled = net["a"] * 2;
  doubled.register_hook([](const at::Tensor&) { throw std::runtime_error("not this batch"); });
  const auto loss = (doubled + net["b"]).sum() * (rank + 1) + loss_with(net["c"], rank + 1);
  EXPECT_THROW(loss.backward(), std::runtime_error);
}

void expect_good(const WeightsImpl& net, int size) {
  EXPECT_TRUE(is_filled(net["a"].grad(), 2 * mean_rank(size)));
  EXPECT_TRUE(is_filled(net["b"].grad(), mean_rank(size)));
  EXPECT_TRUE(is_filled(net["c"].grad(), mean_rank(size)));
}

TEST_P(FailedBackward, TheNextStepIsCorrectAfterZeroGrad) {
  with_ddp_groups(GetParam().size, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group, {.bucket_bytes = GetParam().bucket_bytes});
    for (int step = 0; step < 3; ++step) {
      fail(*net, group.rank());
      net->zero_grad(/*set_to_none=*/step != 1);
      loss_of(*net, group.rank()).backward();
      expect_good(*net, group.size());
      net->zero_grad();
      loss_of(*net, group.rank()).backward();
      expect_good(*net, group.size());
      net->zero_grad();
    }
  });
}

// Whether the user has zeroed them cannot be known on a GPU, where the reduction that the failed
// step had begun may still write.
TEST_P(FailedBackward, TheNextBackwardDiscardsWhatIsLeft) {
  with_ddp_groups(GetParam().size, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group, {.bucket_bytes = GetParam().bucket_bytes});
    for (int step = 0; step < 3; ++step) {
      fail(*net, group.rank());
      EXPECT_FALSE(ddp.should_step());
      loss_of(*net, group.rank()).backward();
      expect_good(*net, group.size());
      net->zero_grad();
    }
    fail(*net, group.rank());
    (*net)["a"].mutable_grad() = torch::ones({5}, test_device());  // the user's own one stays
    loss_of(*net, group.rank()).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 2 * mean_rank(group.size()) + 1));
    EXPECT_TRUE(is_filled((*net)["b"].grad(), mean_rank(group.size())));
  });
}

// Samples of the failed step must not count in the next one.
TEST_P(FailedBackward, ItsSamplesAreForgotten) {
  with_ddp_groups(GetParam().size, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group,
            {.bucket_bytes = GetParam().bucket_bytes, .normalize = Normalize::by_count});
    {
      const auto pause = ddp.no_sync();
      ddp.count(50);
      loss_of(*net, group.rank()).backward();
    }
    ddp.count(70);
    fail(*net, group.rank());
    net->zero_grad();
    EXPECT_TRUE(holds(message_of([&] { loss_of(*net, group.rank()).backward(); }), "count("));
    net->zero_grad();
    ddp.count(1);
    loss_of(*net, group.rank()).backward();
    expect_good(*net, group.size());
  });
}

// The other ranks get PeerError in the same step, and all ranks are synchronized again.
TEST_P(FailedBackward, OfOneRankIsReportedToAllInTheSameStep) {
  const int size = GetParam().size;
  with_ddp_groups(size, [&](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group, {.bucket_bytes = GetParam().bucket_bytes});
    for (int step = 0; step < 4; ++step) {
      const int culprit = step % size;
      if (group.rank() == culprit) {
        fail(*net, group.rank());
      } else {
        const auto text = message_of([&] {
          if (step < 3) loss_of(*net, group.rank()).backward();
          if (step == 3) ddp.sit_out();
        });
        EXPECT_TRUE(holds(text, "the backward of rank " + std::to_string(culprit) + " failed"));
        EXPECT_TRUE(holds(text, "in backward " + std::to_string(2 * step + 1)));
        EXPECT_TRUE(holds(text, "the next backward begins without them"));
      }
      EXPECT_FALSE(ddp.should_step());
      net->zero_grad();
      loss_of(*net, group.rank()).backward();
      expect_good(*net, size);
      net->zero_grad();
    }
  });
}

// On rank 0 all gradients have arrived when the exception is thrown; on the last rank one is
// missing.
TEST_P(FailedBackward, OfAllRanksLeavesThemInStepAlsoWithAnUnusedParameter) {
  const int size = GetParam().size;
  with_ddp_groups(size, [&](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    const Ddp ddp(*net, group, {.bucket_bytes = GetParam().bucket_bytes});
    for (int step = 0; step < 3; ++step) {
      loss_of(*net, group.rank()).backward();
      expect_good(*net, size);
      net->zero_grad();
      const auto input = torch::ones({5}, test_device()).requires_grad_();
      const auto first = input * 1;
      first.register_hook([](const at::Tensor&) { throw std::runtime_error("at the input"); });
      auto hidden = first * (*net)["a"] * (*net)["c"];
      if (group.rank() != size - 1) hidden = hidden * (*net)["b"];
      EXPECT_THROW(hidden.sum().backward(), std::runtime_error);
      net->zero_grad();
    }
  });
}

// The failed rank made no call, so the others cannot know; its next call has a different number.
TEST(FailedBackwardOfOneRank, BeforeItsFirstCallIsFoundByTheNext) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group, {.normalize = Normalize::by_count});
    if (group.rank() == 1) {
      EXPECT_TRUE(holds(message_of([&] { loss_of(*net, 1).backward(); }), "ddp.count(n)"));
    }
    ddp.count(1);
    const auto text = message_of([&] { loss_of(*net, group.rank()).backward(); });
    EXPECT_TRUE(holds(text, "different calls"));
    EXPECT_TRUE(holds(text, "gradients 0 of backward 1"));
    EXPECT_TRUE(holds(text, "gradients 0 of backward 2"));
    EXPECT_TRUE(holds(text, "ddp.sit_out()"));
  });
}

TEST(FailedBackwardOfOneRank, InAMicroBatchIsFoundByTheReduction) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    const Ddp ddp(*net, group, {.accumulate = 3});
    loss_of(*net, group.rank()).backward();
    if (group.rank() == 1) {
      fail(*net, 1);
      net->zero_grad();
    }
    std::string text;
    for (int micro = 0; micro < 3 && text.empty(); ++micro) {
      text = message_of([&] { loss_of(*net, group.rank()).backward(); });
    }
    EXPECT_TRUE(holds(text, "gradients 0 of backward 3"));
    EXPECT_TRUE(holds(text, "gradients 0 of backward 5"));
  });
}

// Autograd does not report such a backward: this rank is one step behind and leaves too early.
TEST(ABackwardThatReachesNoParameter, ShouldNotStepAndIsNamedWhenTheRankLeaves) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    const Ddp ddp(*net, group);
    std::string text;
    for (int step = 1; step <= 4; ++step) {
      if (group.rank() == 1 && step == 2) {
        torch::ones({3}, test_device()).requires_grad_().sum().backward();
        EXPECT_FALSE(ddp.should_step());
        continue;
      }
      text = message_of([&] { loss_of(*net, group.rank()).backward(); });
      EXPECT_EQ(ddp.should_step(), text.empty());
      net->zero_grad();
      EXPECT_FALSE(ddp.should_step()) << "no gradients";
    }
    if (group.rank() == 1) return;
    EXPECT_TRUE(holds(text, "rank 1 has left"));
    EXPECT_TRUE(holds(text, "of backward 4"));
    EXPECT_TRUE(holds(text, "calls ddp.sit_out() instead"));
  });
}

}  // namespace
}  // namespace lockstep
