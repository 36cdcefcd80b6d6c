// GradientBucket::on_commit(): state of a hook changes on all ranks or on none, and only in a step
// that succeeded.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_hooks_internal.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

class Commit : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Commit, ::testing::Values(1, 2, 3));

// Counts its commits, by bucket in order.
GradientHook counting(std::vector<int>& commits) {
  return {[&commits](GradientBucket& bucket) -> HookTask {
            const int index = bucket.index();
            bucket.on_commit([&commits, index] { commits.push_back(2 * index); });
            co_await bucket.all_reduce(bucket.values());
            bucket.on_commit([&commits, index] { commits.push_back(2 * index + 1); });
          },
          "counting"};
}

at::Tensor loss_of(const WeightsImpl& net, double gradient) {
  return loss_with(net["a"], gradient) + loss_with(net["b"], 1);
}

TEST_P(Commit, RunsInOrderAfterASuccessfulStep) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    std::vector<int> commits;
    ddp.set_hook(counting(commits));
    for (int step = 0; step < 3; ++step) {
      commits.clear();
      loss_of(*net, 1).backward();
      EXPECT_EQ(commits, (std::vector{0, 1, 2, 3}));
      net->zero_grad();
    }
  });
}

TEST_P(Commit, IsLeftOutOnAllRanksIfOneHasANonFiniteGradient) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    std::vector<int> commits;
    ddp.set_hook(counting(commits));
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    for (int step = 0; step < 2 * group.size(); ++step) {
      commits.clear();
      const bool bad = step % 2 == 0;
      loss_of(*net, bad && step / 2 == group.rank() ? nan : 1).backward();
      EXPECT_EQ(commits.empty(), bad) << step;
      EXPECT_EQ(ddp.non_finite(), bad) << step;
      net->zero_grad();
    }
  });
}

TEST_P(Commit, IsLeftOutIfTheSumOverflows) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    std::vector<int> commits;
    ddp.set_hook(counting(commits));
    loss_of(*net, 3e38).backward();
    EXPECT_EQ(commits.empty(), group.size() > 1);
    EXPECT_EQ(ddp.non_finite(), group.size() > 1);
  });
}

// Before its call and after it, in any bucket, in both forms.
TEST_P(Commit, IsLeftOutIfOneRankReportsANonFiniteValue) {
  for (const int when : {0, 1}) {
    for (const int where : {0, 1}) {
      with_ddp_groups(GetParam(), [&](ProcessGroup& group) {
        const auto net = weights({"a", "b"});
        Ddp ddp(*net, group, {.bucket_bytes = 1});
        int commits = 0;
        bool bad = false;
        ddp.set_hook([&](GradientBucket& bucket) -> HookTask {
          const bool reports = bad && bucket.index() == where && bucket.rank() == 0;
          if (reports && when == 0) bucket.report_non_finite();
          co_await bucket.all_reduce(bucket.values());
          if (reports && when == 1) bucket.report_non_finite();
          bucket.on_commit([&] { ++commits; });
        });
        for (int step = 0; step < 4; ++step) {
          bad = step % 2 == 1;
          commits = 0;
          loss_of(*net, 1).backward();
          EXPECT_EQ(commits, bad ? 0 : 2);
          EXPECT_EQ(ddp.non_finite(), bad);
          net->zero_grad();
        }
      });
    }
  }
  with_ddp_groups(GetParam(), [&](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    ddp.set_hook([&](GradientBucket& bucket) {
      if (bucket.index() == 0 && bucket.rank() == 0) bucket.report_non_finite();
      return bucket.all_reduce(bucket.values());
    });
    loss_of(*net, 1).backward();
    EXPECT_TRUE(ddp.non_finite());
  });
}

TEST_P(Commit, IsLeftOutOnAllRanksIfABackwardFails) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    std::vector<int> commits;
    ddp.set_hook(counting(commits));
    for (int culprit = 0; culprit < group.size(); ++culprit) {
      commits.clear();
      auto loss = loss_of(*net, 1);
      if (group.rank() == culprit) {
        loss.register_hook([](const at::Tensor&) { throw std::runtime_error("not this batch"); });
        const auto inner = (*net)["a"] * 2;
        inner.register_hook([](const at::Tensor&) { throw std::runtime_error("not this batch"); });
        const auto failing = inner.sum() + loss_with((*net)["b"], 1);
        EXPECT_THROW(failing.backward(), std::runtime_error);
      } else {
        EXPECT_TRUE(holds(message_of([&] { loss.backward(); }), "failed"));
      }
      EXPECT_TRUE(commits.empty());
      net->zero_grad();
      loss_of(*net, 1).backward();
      EXPECT_EQ(commits, (std::vector{0, 1, 2, 3}));
      net->zero_grad();
    }
  });
}

TEST_P(Commit, IsLeftOutIfNoRankHadASample) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    std::vector<int> commits;
    ddp.set_hook(counting(commits));
    ddp.sit_out();
    EXPECT_TRUE(commits.empty());
    if (group.rank() == 0) loss_of(*net, 1).backward();
    if (group.rank() != 0) ddp.sit_out();
    EXPECT_EQ(commits, (std::vector{0, 1, 2, 3}));
  });
}

}  // namespace
}  // namespace lockstep
