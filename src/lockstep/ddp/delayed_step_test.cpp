// Two gradient buffers: the next backward runs while the previous gradients are averaged, and each
// optimizer step uses gradients that are one step old.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

constexpr int kSteps = 5;

at::Tensor loss_of(TestNet& net, int rank, int step) {
  return net->forward(batch_of(rank, step)).square().mean();
}

torch::optim::SGD optimizer_of(TestNet& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

std::vector<at::Tensor> values_of(const TestNet& net) {
  std::vector<at::Tensor> values;
  for (const auto& parameter : net->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

// One process: computes the gradients of step t, then steps with those of step t - 1.
std::vector<at::Tensor> serial_delayed(int size) {
  TestNet net;
  fill(*net, 1);
  auto optimizer = optimizer_of(net);
  std::vector<at::Tensor> last;
  const auto step_with_last = [&] {
    for (std::size_t i = 0; i < last.size(); ++i) net->parameters()[i].mutable_grad() = last[i];
    optimizer.step();
  };
  for (int step = 0; step < kSteps; ++step) {
    std::vector<std::vector<at::Tensor>> all;
    for (int rank = 0; rank < size; ++rank) {
      net->zero_grad();
      loss_of(net, rank, step).backward();
      all.push_back(gradients_of(*net));
    }
    if (step > 0) step_with_last();
    last = serial_mean(all, size);
  }
  step_with_last();
  return values_of(net);
}

class DelayedStep : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DelayedStep, ::testing::Range(1, 5));

TEST_P(DelayedStep, TrainsAsOneProcessWhoseGradientsAreOneStepOld) {
  const auto expected = serial_delayed(GetParam());
  with_ddp_groups(GetParam(), [&](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096, .gradient_buffers = 2});
    auto optimizer = optimizer_of(net);
    std::optional<Ddp::Sync> sync;
    const auto step_with_last = [&] {
      sync->wait();
      EXPECT_TRUE(ddp.should_step());
      optimizer.step();
      optimizer.zero_grad();
    };
    for (int step = 0; step < kSteps; ++step) {
      {
        const auto pause = ddp.no_sync();
        loss_of(net, group.rank(), step).backward();
      }
      if (sync) step_with_last();
      sync = ddp.start();
    }
    step_with_last();
    EXPECT_TRUE(are_equal(values_of(net), expected));
  });
}

TEST(Ddp, FillsOneBufferWhileTheOtherIsReduced) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    auto net = weights({"w"});
    Ddp ddp(*net, group, {.gradient_buffers = 2});
    const auto own = 1.0 + group.rank();
    const auto run = [&](double gradient) {
      const auto pause = ddp.no_sync();
      loss_with((*net)["w"], gradient).backward();
    };
    run(own);
    auto sync = ddp.start();
    EXPECT_FALSE((*net)["w"].grad().defined()) << "the second buffer is empty";
    run(10 * own);
    EXPECT_TRUE(is_filled((*net)["w"].grad(), 10 * own));
    EXPECT_TRUE((*net)["w"].grad().is_alias_of(ddp.flat().gradients(0, 1)));
    sync.wait();
    EXPECT_TRUE((*net)["w"].grad().is_alias_of(ddp.flat().gradients(0, 0)));
    EXPECT_TRUE(is_filled((*net)["w"].grad(), mean_rank(2)));
    net->zero_grad();
    ddp.start().wait();
    EXPECT_TRUE(is_filled((*net)["w"].grad(), 10 * mean_rank(2)));
    EXPECT_TRUE((*net)["w"].grad().is_alias_of(ddp.flat().gradients(0, 1)));
    net->zero_grad();
    loss_with((*net)["w"], own).backward();
    EXPECT_TRUE(is_filled((*net)["w"].grad(), mean_rank(2))) << "a plain step works as before";
  });
}

TEST(Ddp, FillsTheReducedBufferAgainWhenNoGradientArrivedMeanwhile) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    Ddp ddp(*net, group, {.gradient_buffers = 2});
    const auto pause = ddp.no_sync();
    loss_with((*net)["a"], group.rank() + 1).backward();
    ddp.start().wait();
    loss_with((*net)["a"], 10).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 10 + mean_rank(2))) << "added, as with one buffer";
  });
}

TEST(Ddp, AveragesGradientsAssignedBetweenStartAndWaitInTheNextReduction) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    Ddp ddp(*net, group, {.gradient_buffers = 2});
    {
      const auto pause = ddp.no_sync();
      loss_with((*net)["a"], group.rank() + 1).backward();
    }
    auto sync = ddp.start();
    (*net)["a"].mutable_grad() = torch::full({5}, 10.0 + group.rank() + 1, test_device());
    sync.wait();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(2)));
    ddp.start().wait();
    EXPECT_TRUE(ddp.should_step());
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 10 + mean_rank(2)));
  });
}

TEST(Ddp, CountsTheSamplesOfEachBufferSeparately) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    auto net = weights({"w"});
    Ddp ddp(*net, group, {.normalize = Normalize::by_count, .gradient_buffers = 2});
    const auto run = [&](std::int64_t samples, double sum) {
      const auto pause = ddp.no_sync();
      ddp.count(samples);
      loss_with((*net)["w"], sum).backward();
    };
    run(3, 12);
    auto sync = ddp.start();
    if (group.rank() == 1) run(4, 20);  // rank 0 has no batch in the second step
    sync.wait();
    EXPECT_TRUE(is_filled((*net)["w"].grad(), (12 + 12) / (3.0 + 3.0)));
    net->zero_grad();
    ddp.start().wait();
    EXPECT_TRUE(is_filled((*net)["w"].grad(), 20 / 4.0));
    EXPECT_TRUE(ddp.should_step());
  });
}

TEST(Ddp, SaysWhatABackwardDuringAReductionNeeds) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    for (const int buffers : {1, 2}) {
      auto net = weights({"w"});
      Ddp ddp(*net, group, {.gradient_buffers = buffers});
      {
        const auto pause = ddp.no_sync();
        loss_with((*net)["w"], 1).backward();
      }
      auto sync = ddp.start();
      const auto said = message_of([&] { loss_with((*net)["w"], 1).backward(); });
      EXPECT_TRUE(holds(said, "between start() and wait()"));
      EXPECT_TRUE(holds(said, buffers == 1 ? ".gradient_buffers = 2" : "under no_sync()"));
      sync.wait();
      EXPECT_TRUE(is_filled((*net)["w"].grad(), 1));
    }
    auto net = weights({"w"});
    EXPECT_TRUE(holds(message_of([&] { Ddp ddp(*net, group, {.gradient_buffers = 3}); }),
                      "gradient_buffers is 3"));
  });
}

// The gradient of `first` arrives before that of `second`: the operation computed last runs
// backward first. The operands of a sum have no defined order.
at::Tensor loss_in_order(const WeightsImpl& net, const char* first, const char* second,
                         double gradient) {
  const auto comes_second = loss_with(net[second], gradient);
  const auto comes_first = loss_with(net[first], gradient);
  return comes_first + comes_second;
}

constexpr double kRefused = 7;

Weights weights_with_a_hook_that_throws() {
  const auto net = weights({"hooked", "plain"});
  (*net)["hooked"].register_hook([](const at::Tensor& gradient) -> at::Tensor {
    if (gradient[0].item<float>() == kRefused) throw UsageError("a hook of the user's");
    return gradient;
  });
  return net;
}

TEST(Ddp, DiscardsBothStepsWhenTheBackwardBetweenStartAndWaitFails) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights_with_a_hook_that_throws();
    Ddp ddp(*net, group, {.gradient_buffers = 2});
    const auto loss = [&](double gradient) {
      return loss_in_order(*net, "plain", "hooked", gradient);
    };
    {
      const auto pause = ddp.no_sync();
      loss(1).backward();
      auto sync = ddp.start();
      EXPECT_THROW(loss(kRefused).backward(), UsageError);
      sync.wait();  // has nothing to wait for
      EXPECT_FALSE(ddp.should_step());
    }
    net->zero_grad();
    loss(1.0 + group.rank()).backward();
    EXPECT_TRUE(is_filled((*net)["hooked"].grad(), mean_rank(2)));
    EXPECT_TRUE(is_filled((*net)["plain"].grad(), mean_rank(2)));
  });
}

// Such a backward has written to no buffer, so the reduction that start() began is valid.
TEST(Ddp, KeepsTheStartedStepWhenTheOverlappingBackwardFailsBeforeItsFirstGradient) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights_with_a_hook_that_throws();
    Ddp ddp(*net, group, {.gradient_buffers = 2});
    const auto loss = [&](double gradient) {
      return loss_in_order(*net, "hooked", "plain", gradient);
    };
    for (int step = 0; step < 2; ++step) {
      const auto pause = ddp.no_sync();
      loss(1.0 + group.rank()).backward();
      auto sync = ddp.start();
      EXPECT_THROW(loss(kRefused).backward(), UsageError);
      sync.wait();
      EXPECT_TRUE(ddp.should_step());
      EXPECT_TRUE(is_filled((*net)["hooked"].grad(), mean_rank(2)));
      EXPECT_TRUE(is_filled((*net)["plain"].grad(), mean_rank(2)));
      net->zero_grad();
    }
    loss(3.0 + group.rank()).backward();
    EXPECT_TRUE(is_filled((*net)["hooked"].grad(), 2 + mean_rank(2)));
  });
}

}  // namespace
}  // namespace lockstep
