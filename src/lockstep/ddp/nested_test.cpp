// A backward inside a backward, as in re-entrant activation checkpointing: gradients arrive in
// nested graphs, and the reduction ends with the outermost one.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/ddp/test_recomputed_internal.h"

namespace lockstep {
namespace {

struct Case {
  int size = 1;
  std::size_t bucket_bytes = 1;
};

class Nested : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(RanksAndBuckets, Nested,
                         ::testing::Values(Case{1, 1}, Case{2, 1}, Case{2, kDefaultBucketBytes},
                                           Case{3, 1}, Case{3, kDefaultBucketBytes}));

// Runs two steps of a loss on every rank. `expected` is a multiple of the mean rank, by parameter;
// 0 means no gradient.
void expect_means(const Case& setting, const std::vector<std::pair<std::string, double>>& expected,
                  const std::function<at::Tensor(const WeightsImpl&, double)>& loss_of) {
  with_ddp_groups(setting.size, [&](ProcessGroup& group) {
    std::vector<std::string> names;
    for (const auto& [name, value] : expected) names.push_back(name);
    const auto net = weights(names);
    Ddp ddp(*net, group, {.bucket_bytes = setting.bucket_bytes});
    for (int step = 0; step < 3; ++step) {
      loss_of(*net, group.rank() + 1).backward();
      for (const auto& [name, value] : expected) {
        const auto gradient = (*net)[name].grad();
        EXPECT_EQ(gradient.defined(), value != 0) << name;
        if (value != 0) {
          EXPECT_TRUE(is_filled(gradient, value * mean_rank(group.size()))) << name;
        }
      }
      net->zero_grad();
    }
  });
}

TEST_P(Nested, OuterParametersMayFollowIt) {
  expect_means(GetParam(), {{"a", 2}, {"b", 2}, {"c", 1}}, [](const WeightsImpl& net, double rank) {
    const auto y =
        recomputed(net["a"], [b = net["b"]](const at::Tensor& x) { return (x + b) * 2; });
    return ((y + net["c"]) * rank).sum();
  });
}

TEST_P(Nested, ItMayHoldTheLastParameters) {
  expect_means(GetParam(), {{"a", 2}, {"b", 2}, {"c", 1}}, [](const WeightsImpl& net, double rank) {
    const Body body = [a = net["a"], b = net["b"]](const at::Tensor& x) { return (x + a + b) * 2; };
    return ((recomputed(torch::ones({5}, test_device()).requires_grad_(), body) + net["c"]) * rank)
        .sum();
  });
}

TEST_P(Nested, ItMayHoldAllParameters) {
  expect_means(GetParam(), {{"a", 2}, {"b", 2}}, [](const WeightsImpl& net, double rank) {
    const Body body = [a = net["a"], b = net["b"]](const at::Tensor& x) { return (x + a + b) * 2; };
    return (recomputed(torch::ones({5}, test_device()).requires_grad_(), body) * rank).sum();
  });
}

TEST_P(Nested, OneMayFollowAnother) {
  expect_means(GetParam(), {{"a", 6}, {"b", 6}, {"c", 2}}, [](const WeightsImpl& net, double rank) {
    const Body first = [a = net["a"], b = net["b"]](const at::Tensor& x) {
      return (x + a + b) * 3;
    };
    const Body second = [c = net["c"]](const at::Tensor& x) { return (x + c) * 2; };
    const auto hidden = recomputed(torch::ones({5}, test_device()).requires_grad_(), first);
    return (recomputed(hidden, second) * rank).sum();
  });
}

TEST_P(Nested, ItMayBeNestedTwice) {
  expect_means(GetParam(), {{"a", 2}, {"b", 6}, {"c", 1}, {"last", 6}},
               [](const WeightsImpl& net, double rank) {
                 const Body inner = [b = net["b"]](const at::Tensor& x) { return (x + b) * 3; };
                 const Body outer = [inner, a = net["a"]](const at::Tensor& x) {
                   return (recomputed(x, inner) + a) * 2;
                 };
                 return ((recomputed(net["last"], outer) + net["c"]) * rank).sum();
               });
}

TEST_P(Nested, TheInnermostMayHoldAllParameters) {
  expect_means(GetParam(), {{"a", 6}, {"b", 6}}, [](const WeightsImpl& net, double rank) {
    const Body inner = [a = net["a"], b = net["b"]](const at::Tensor& x) {
      return (x + a + b) * 3;
    };
    const Body outer = [inner](const at::Tensor& x) { return recomputed(x, inner) * 2; };
    return (recomputed(torch::ones({5}, test_device()).requires_grad_(), outer) * rank).sum();
  });
}

TEST_P(Nested, UnusedParametersOutsideItDoNotChange) {
  expect_means(GetParam(), {{"a", 2}, {"unused", 0}, {"b", 2}},
               [](const WeightsImpl& net, double rank) {
                 const Body body = [b = net["b"]](const at::Tensor& x) { return (x + b) * 2; };
                 return (recomputed(net["a"], body) * rank).sum();
               });
}

TEST_P(Nested, UnderNoSyncItIsAveragedLater) {
  with_ddp_groups(GetParam().size, [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    const Body body = [b = (*net)["b"]](const at::Tensor& x) { return (x + b) * 2; };
    const auto loss_of = [&] {
      const auto input = torch::ones({5}, test_device()).requires_grad_();
      return (recomputed(input, body) * (group.rank() + 1)).sum();
    };
    {
      const auto pause = ddp.no_sync();
      loss_of().backward();
      EXPECT_TRUE(is_filled((*net)["b"].grad(), 2 * group.rank() + 2));
    }
    loss_of().backward();
    EXPECT_TRUE(is_filled((*net)["b"].grad(), 4 * mean_rank(group.size())));
  });
}

// It would be reduced before its second gradient arrives, so it is refused; under no_sync() it
// works.
TEST_P(Nested, AWeightInsideAndOutsideIsRefusedByName) {
  with_ddp_groups(GetParam().size, [](ProcessGroup& group) {
    const auto net = weights({"a", "tied"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    const Body body = [tied = (*net)["tied"]](const at::Tensor& x) { return (x + tied) * 2; };
    const auto loss_of = [&] {
      return (recomputed((*net)["a"] + (*net)["tied"], body) * (group.rank() + 1)).sum();
    };
    const auto text = message_of([&] { loss_of().backward(); });
    EXPECT_TRUE(holds(text, "tied"));
    EXPECT_TRUE(holds(text, "no_sync"));
    net->zero_grad();
    {
      const auto pause = ddp.no_sync();
      loss_of().backward();
    }
    ddp.start().wait();
    EXPECT_TRUE(is_filled((*net)["tied"].grad(), 4 * mean_rank(group.size())));
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 2 * mean_rank(group.size())));
  });
}

}  // namespace
}  // namespace lockstep
