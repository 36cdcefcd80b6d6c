// Errors of users: each is detected, with the name of the parameter or rank and what to do next.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>
#include <string>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

class Misuse : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Misuse, ::testing::Values(1, 2, 3));

TestNet make_net() {
  TestNet net;
  fill(*net, 1);
  return net;
}

at::Tensor loss_of(TestNet& net, int rank, bool with_branch = true) {
  return net->forward(batch_of(rank, 0), with_branch).square().mean();
}

// Each way in which parameters leave registered memory. After adopt() training continues with the
// new values.
void expect_caught_and_repaired(int size, const std::string& name,
                                const std::function<void(TestNet&)>& leave) {
  with_ddp_groups(size, [&](ProcessGroup& group) {
    auto net = make_net();
    Ddp ddp(*net, group, {.bucket_bytes = 2048});
    loss_of(net, group.rank()).backward();
    net->zero_grad();
    leave(net);
    for (int again = 0; again < 2; ++again) {
      const auto text = message_of([&] { loss_of(net, group.rank()).backward(); });
      EXPECT_TRUE(holds(text, name));
      EXPECT_TRUE(holds(text, "adopt()"));
      net->zero_grad();
    }
    ddp.adopt();
    loss_of(net, group.rank()).backward();
    const auto got = gradients_of(*net);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(net->parameters()[i].grad().is_alias_of(ddp.flat().gradients(0)));
      EXPECT_TRUE(net->parameters()[i].is_alias_of(ddp.flat().values(0)));
      auto work = group.barrier(
          {.flags = CallFlags{.equal = static_cast<std::uint64_t>(
                                  got[i].to(torch::kDouble).sum().item<double>() * 1e9)}});
      work.wait();
      EXPECT_TRUE(work.flags().all_equal) << "averaged again: " << i;
    }
  });
}

TEST_P(Misuse, ToAnotherDtypeAndBack) {
  expect_caught_and_repaired(GetParam(), "head", [](TestNet& net) {
    net->to(torch::kDouble);
    net->to(torch::kFloat);
  });
}

TEST_P(Misuse, SetDataOfOneParameter) {
  expect_caught_and_repaired(GetParam(), "second.bias", [](TestNet& net) {
    net->second->bias.set_data(torch::ones({40}, test_device()));
  });
}

TEST_P(Misuse, LoadingAfterwards) {
  std::stringstream file;
  {
    auto net = make_net();
    torch::save(net, file);
  }
  const auto text = file.str();
  expect_caught_and_repaired(GetParam(), "head", [&](TestNet& net) {
    std::stringstream copy(text);
    torch::load(net, copy);
  });
}

TEST_P(Misuse, ReplacingASubmodule) {
  expect_caught_and_repaired(GetParam(), "branch.weight", [](TestNet& net) {
    torch::nn::Linear other(40, 40);
    fill(*other, 3);
    net->branch = net->replace_module("branch", other);
  });
}

TEST_P(Misuse, PointingOneParameterAtAnother) {
  expect_caught_and_repaired(GetParam(), "branch.weight", [](TestNet& net) {
    net->branch->weight.set_data(net->second->weight);
  });
}

// No gradient reaches the slots any more; only gradients that bypass them reveal it.
TEST_P(Misuse, AWholeModelThatLeftIsCaught) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    auto net = make_net();
    Ddp ddp(*net, group);
    net->to(torch::kDouble);
    const auto text = message_of(
        [&] { net->forward(batch_of(group.rank(), 0).to(torch::kDouble)).sum().backward(); });
    EXPECT_TRUE(holds(text, "head"));
    EXPECT_TRUE(holds(text, "registered memory"));
    const auto refusal = message_of([&] { ddp.adopt(); });
    EXPECT_TRUE(holds(refusal, "Double"));
    EXPECT_TRUE(holds(refusal, "new Ddp"));
  });
}

TEST_P(Misuse, ParametersAddedAfterwardsAreNamed) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a"});
    Ddp ddp(*net, group);
    net->register_parameter("late", torch::zeros({3}, test_device()));
    EXPECT_TRUE(holds(message_of([&] { ddp.flat().expect_in_place(); }), "late"));
    EXPECT_TRUE(holds(message_of([&] { ddp.adopt(); }), "late"));
  });
}

TEST_P(Misuse, ASecondDdpForOneModelIsRefused) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a"});
    {
      Ddp ddp(*net, group);
      const auto text = message_of([&] { Ddp second(*net, group); });
      EXPECT_TRUE(holds(text, "parameter a"));
      loss_with((*net)["a"], group.rank() + 1).backward();
      EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
      net->zero_grad();
    }
    Ddp after(*net, group);
    loss_with((*net)["a"], group.rank() + 1).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
  });
}

TEST_P(Misuse, AStepOnGradientsThatWereNotAveraged) {
  for (const auto* used_again : {"a", "b"}) {
    with_ddp_groups(GetParam(), [used_again](ProcessGroup& group) {
      const auto net = weights({"a", "b"}, 1000);
      Ddp ddp(*net, group);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      {
        const auto pause = ddp.no_sync();
        loss_with((*net)["b"], group.rank() + 1).backward();
      }
      optimizer.step();
      const auto text = message_of([&] { loss_with((*net)[used_again], 1).backward(); });
      EXPECT_TRUE(holds(text, "parameter b was changed"));
      EXPECT_TRUE(holds(text, "no_sync()"));
    });
  }
}

TEST_P(Misuse, AStepAfterWhichTheGradientsAreReset) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    auto net = make_net();
    Ddp ddp(*net, group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    {
      const auto pause = ddp.no_sync();
      loss_of(net, group.rank()).backward();
    }
    optimizer.step();
    optimizer.zero_grad();
    const auto text = message_of([&] { loss_of(net, group.rank()).backward(); });
    EXPECT_TRUE(holds(text, "no_sync()"));
  });
}

TEST(MisuseOfModels, DifferOnSomeRank) {
  with_ddp_groups(3, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    net->register_parameter("b", torch::zeros({group.rank() == 2 ? 3 : 2}, test_device()));
    const auto text = message_of([&] { Ddp ddp(*net, group); });
    EXPECT_TRUE(holds(text, "b: "));
    EXPECT_TRUE(holds(text, "rank 2"));
    EXPECT_TRUE(holds(text, "[3]"));
  });
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    if (group.rank() == 1) net->register_parameter("more", torch::zeros({1}, test_device()));
    const auto text = message_of([&] { Ddp ddp(*net, group); });
    EXPECT_TRUE(holds(text, "more: "));
    EXPECT_TRUE(holds(text, "rank 1"));
  });
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    (*net)["a"].requires_grad_(group.rank() == 0);
    EXPECT_TRUE(holds(message_of([&] { Ddp ddp(*net, group); }), "frozen"));
  });
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({});
    net->register_parameter(
        "a", torch::zeros({2}, on_device(group.rank() == 0 ? torch::kFloat : torch::kHalf)));
    EXPECT_TRUE(holds(message_of([&] { Ddp ddp(*net, group); }), "Half"));
  });
}

TEST_P(Misuse, UnsupportedModels) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto empty = weights({});
    EXPECT_TRUE(holds(message_of([&] { Ddp ddp(*empty, group); }), "no parameters"));
    const auto whole = weights({"a"});
    whole->register_parameter("number", torch::zeros({2}, on_device(torch::kLong)),
                              /*requires_grad=*/false);
    EXPECT_TRUE(holds(message_of([&] { Ddp ddp(*whole, group); }), "number"));
    const auto net = weights({"a"});
    EXPECT_TRUE(holds(message_of([&] { Ddp ddp(*net, group, {.accumulate = 0}); }), "accumulate"));
  });
}

TEST_P(Misuse, OfCounts) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.normalize = Normalize::by_count});
    EXPECT_TRUE(holds(message_of([&] { loss_with((*net)["a"], 1).backward(); }), "ddp.count(n)"));
    net->zero_grad();
    EXPECT_TRUE(holds(message_of([&] { ddp.count(-3); }), "-3"));
    ddp.count(1);
    EXPECT_TRUE(holds(message_of([&] { ddp.sit_out(); }), "count"));
    loss_with((*net)["a"], 1).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 1));
    // Without zero_grad() the average would be divided by the number of samples again.
    ddp.count(1);
    const auto text = message_of([&] { loss_with((*net)["a"], 1).backward(); });
    EXPECT_TRUE(holds(text, "gradient of a"));
    EXPECT_TRUE(holds(text, "zero_grad()"));
    ddp.count(1);
    loss_with((*net)["a"], 1).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 1)) << "counts of refused steps are discarded";
    const auto other = weights({"a"});
    Ddp by_rank(*other, group);
    EXPECT_TRUE(holds(message_of([&] { by_rank.count(1); }), "by_count"));
  });
}

TEST_P(Misuse, OfStartAndWait) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    {
      const auto pause = ddp.no_sync();
      loss_with((*net)["a"], group.rank() + 1).backward();
    }
    auto sync = ddp.start();
    const auto expect_refused = [&](const std::function<void()>& action, const std::string& verb) {
      EXPECT_TRUE(holds(message_of(action), verb));
    };
    expect_refused([&] { (void)ddp.start(); }, "start()");
    expect_refused([&] { ddp.sit_out(); }, "sit_out()");
    expect_refused([&] { ddp.adopt(); }, "adopt()");
    expect_refused([&] { loss_with((*net)["b"], 1).backward(); }, "wait()");
    sync.wait();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
    net->zero_grad();
    loss_with((*net)["b"], group.rank() + 1).backward();
    EXPECT_TRUE(is_filled((*net)["b"].grad(), mean_rank(group.size())));
  });
}

TEST_P(Misuse, CallsDuringABackward) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    const auto doubled = (*net)["a"] * 2;
    int calls = 0;
    doubled.register_hook([&](const at::Tensor& gradient) {
      EXPECT_TRUE(holds(message_of([&] { ddp.sit_out(); }), "sit_out()"));
      EXPECT_TRUE(holds(message_of([&] { (void)ddp.start(); }), "start()"));
      ++calls;
      return gradient;
    });
    (doubled + (*net)["b"]).sum().backward();
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 2));
  });
}

}  // namespace
}  // namespace lockstep
