// Gradient hooks: whatever a program does, a hook that computes the average gives what a Ddp
// without a hook gives, in every form and order of calls.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_hooks_internal.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;
/// Trains and returns what is compared. Calls the function once, on its Ddp.
using Program = std::function<Tensors(ProcessGroup&, const std::function<void(Ddp&)>&)>;

class Hooks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Hooks, ::testing::Values(1, 2, 3));

void expect_equal_with_hooks(int size, const Program& program) {
  with_ddp_groups(size, [&](ProcessGroup& group) {
    const auto expected = program(group, [](Ddp&) {});
    for (const auto& hook : equal_hooks()) {
      const auto got = program(group, [&](Ddp& ddp) { ddp.set_hook(hook); });
      EXPECT_TRUE(are_equal(got, expected)) << hook.name();
    }
  });
}

at::Tensor loss_of(TestNet& net, int rank, int step, std::int64_t rows = 4) {
  return net->forward(batch_of(rank, step, rows)).square().sum();
}

void descend(TestNet& net, Tensors& seen) {
  const torch::NoGradGuard off;
  for (auto& parameter : net->parameters()) {
    seen.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 1e-4);
  }
  net->zero_grad();
}

TEST_P(Hooks, TrainAsWithoutAHook) {
  expect_equal_with_hooks(GetParam(), [](ProcessGroup& group, const auto& prepare) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096});
    prepare(ddp);
    Tensors seen;
    for (int step = 0; step < 4; ++step) {
      loss_of(net, group.rank(), step).backward();
      EXPECT_TRUE(ddp.should_step());
      descend(net, seen);
    }
    return seen;
  });
}

TEST_P(Hooks, WeightRanksByTheirCounts) {
  expect_equal_with_hooks(GetParam(), [](ProcessGroup& group, const auto& prepare) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096, .normalize = Normalize::by_count});
    prepare(ddp);
    Tensors seen;
    for (int step = 0; step < 3; ++step) {
      const std::int64_t rows = (group.rank() + step) % 3;  // 0 is a batch without rows
      ddp.count(rows);
      loss_of(net, group.rank(), step, rows).backward();
      descend(net, seen);
    }
    return seen;
  });
}

TEST_P(Hooks, AccumulateMicroBatches) {
  expect_equal_with_hooks(GetParam(), [](ProcessGroup& group, const auto& prepare) {
    TestNet net;
    fill(*net, 1);
    Tensors seen;
    {
      Ddp ddp(*net, group, {.bucket_bytes = 4096, .accumulate = 3});
      prepare(ddp);
      for (int step = 0; step < 6; ++step) {
        loss_of(net, group.rank(), step).backward();
        EXPECT_EQ(ddp.should_step(), step % 3 == 2);
        if (ddp.should_step()) descend(net, seen);
      }
    }
    Ddp ddp(*net, group, {.bucket_bytes = 4096});
    prepare(ddp);
    for (int step = 0; step < 2; ++step) {
      {
        const auto scope = ddp.no_sync();
        loss_of(net, group.rank(), step).backward();
      }
      loss_of(net, group.rank(), step + 7).backward();
      descend(net, seen);
    }
    return seen;
  });
}

TEST_P(Hooks, LeaveUnusedParametersAsTheyAre) {
  expect_equal_with_hooks(GetParam(), [](ProcessGroup& group, const auto& prepare) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096});
    prepare(ddp);
    Tensors seen;
    for (int step = 0; step < 6; ++step) {
      // The branch is used on no rank, on one, or on all; a stale gradient is kept in odd steps.
      const bool uses = step % 3 == 2 || (step % 3 == 1 && group.rank() == 0);
      net->forward(batch_of(group.rank(), step), uses).square().sum().backward();
      for (const auto& parameter : net->parameters()) {
        seen.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
      }
      if (step % 2 == 1) net->zero_grad();
    }
    return seen;
  });
}

TEST_P(Hooks, RunOnARankThatSitsOut) {
  expect_equal_with_hooks(GetParam(), [](ProcessGroup& group, const auto& prepare) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096, .normalize = Normalize::by_count});
    prepare(ddp);
    Tensors seen;
    for (int step = 0; step < 5; ++step) {
      const bool sits = step == 4 || (group.rank() + step) % 3 == 0;
      if (sits) {
        ddp.sit_out();
      } else {
        ddp.count(4);
        loss_of(net, group.rank(), step).backward();
      }
      seen.push_back(torch::tensor({ddp.num_sitting_out(), ddp.should_step() ? 1 : 0}));
      if (step < 4) descend(net, seen);
    }
    return seen;
  });
}

TEST_P(Hooks, ReduceOneBufferWhileBackwardFillsTheOther) {
  expect_equal_with_hooks(GetParam(), [](ProcessGroup& group, const auto& prepare) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096, .gradient_buffers = 2});
    prepare(ddp);
    Tensors seen;
    std::optional<Ddp::Sync> sync;
    for (int step = 0; step < 4; ++step) {
      {
        const auto scope = ddp.no_sync();
        loss_of(net, group.rank(), step).backward();
      }
      if (sync) {
        sync->wait();
        descend(net, seen);
      }
      sync = ddp.start();
    }
    sync->wait();
    descend(net, seen);
    return seen;
  });
}

TEST_P(Hooks, StaySetAfterRebindAndAdopt) {
  expect_equal_with_hooks(GetParam(), [](ProcessGroup& group, const auto& prepare) {
    const auto other = group.split(0, -group.rank());  // the ranks in reverse order
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096});
    prepare(ddp);
    Tensors seen;
    const auto train = [&](int from) {
      for (int step = from; step < from + 2; ++step) {
        loss_of(net, group.rank(), step).backward();
        descend(net, seen);
      }
    };
    train(0);
    ddp.rebind(other);
    train(2);
    ddp.adopt();
    train(4);
    return seen;
  });
}

TEST_P(Hooks, SeeTheBucketsOfThePlan) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096, .normalize = Normalize::by_count});
    std::vector<std::string> names;
    std::int64_t total = 0;
    std::vector<bool> last;
    ddp.set_hook([&](GradientBucket& bucket) -> HookTask {
      const auto& planned = ddp.plan().buckets[static_cast<std::size_t>(bucket.index())];
      EXPECT_EQ(bucket.values().numel(), planned.end - planned.begin);
      EXPECT_EQ(bucket.parameters().size(), planned.parameters.size());
      EXPECT_EQ(bucket.weight(), group.rank() + 1);
      EXPECT_EQ(bucket.num_ranks(), group.size());
      EXPECT_EQ(bucket.rank(), group.rank());
      EXPECT_TRUE(holds(message_of([&] { (void)bucket.total_weight(); }), "first co_await"));
      for (const auto& parameter : bucket.parameters()) {
        const auto named = net->named_parameters()[parameter.name];
        EXPECT_EQ(parameter.sizes, named.sizes().vec());
        EXPECT_EQ(parameter.end - parameter.begin, named.numel());
        EXPECT_TRUE(torch::equal(bucket.values_of(parameter).view(named.sizes()), named.grad()));
        names.push_back(parameter.name);
      }
      last.push_back(bucket.is_last());
      co_await bucket.all_reduce(bucket.values());
      total = bucket.total_weight();
    });
    ddp.count(group.rank() + 1);
    loss_of(net, group.rank(), 0).backward();
    EXPECT_EQ(names.size(), net->parameters().size());
    EXPECT_EQ(total, group.size() * (group.size() + 1) / 2);
    ASSERT_GT(last.size(), 1U);
    for (std::size_t i = 0; i < last.size(); ++i) EXPECT_EQ(last[i], i + 1 == last.size()) << i;
  });
}

// The ranks are slow in different buckets, so their calls are done at different times.
TEST_P(Hooks, StartInBucketOrderAndContinueBucketByBucket) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    std::vector<int> started;
    std::vector<std::pair<int, int>> continued;
    ddp.set_hook([&](GradientBucket& bucket) -> HookTask {
      started.push_back(bucket.index());
      if (bucket.index() % group.size() == group.rank()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      auto values = bucket.values();
      co_await bucket.all_reduce(values);
      // The number of later calls depends on the bucket.
      for (int call = 0; call < bucket.index() % 3; ++call) {
        continued.emplace_back(bucket.index(), call);
        co_await bucket.all_reduce(values);
      }
    });
    for (int step = 0; step < 3; ++step) {
      started.clear();
      continued.clear();
      net->zero_grad();
      loss_of(net, group.rank(), step).backward();
      ASSERT_EQ(started.size(), 8U);
      EXPECT_TRUE(std::is_sorted(started.begin(), started.end()));
      EXPECT_EQ(continued.size(), 7U);
      EXPECT_TRUE(std::is_sorted(continued.begin(), continued.end()));
    }
  });
}

TEST(AHookWithDifferentResults, IsFoundByTheReplicaCheck) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group);
    ddp.set_hook([&](GradientBucket& bucket) -> HookTask {
      co_await bucket.all_reduce(bucket.values());
      if (group.rank() == 1) bucket.values().mul_(1.5);
    });
    std::string text;
    for (int step = 0; step < 130 && text.empty(); ++step) {
      net->zero_grad();
      text = message_of([&] { loss_of(net, group.rank(), step).backward(); });
    }
    EXPECT_TRUE(holds(text, "differ"));
  });
}

TEST(AHookWithoutACall, LeavesGradientsAsTheyAre) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    ddp.set_hook([](GradientBucket&) { return Work(); });
    for (int step = 0; step < 3; ++step) {
      (loss_with((*net)["a"], 3) + loss_with((*net)["b"], 5)).backward();
      EXPECT_TRUE(is_filled((*net)["a"].grad(), 3));
      EXPECT_TRUE(is_filled((*net)["b"].grad(), 5));
      net->zero_grad();
    }
  });
}

TEST(SetHook, IsValidOnceBeforeTheFirstBackwardWithTheSameHookOnAllRanks) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    {
      Ddp ddp(*net, group);
      ddp.set_hook(all_reduce_hook());
      const auto text = message_of([&] { ddp.set_hook({reduce_in_one_call, "other"}); });
      EXPECT_TRUE(holds(text, "set_hook() of other came after set_hook() of none"));
    }
    {
      Ddp ddp(*net, group);
      loss_with((*net)["a"], 1).backward();
      const auto text = message_of([&] { ddp.set_hook(all_reduce_hook()); });
      EXPECT_TRUE(holds(text, "came after a backward()"));
    }
    Ddp ddp(*net, group);
    const auto text = message_of([&] {
      ddp.set_hook(GradientHook(reduce_in_one_call, group.rank() == 0 ? "this" : "that"));
    });
    EXPECT_TRUE(holds(text, "this (returns HookTask) on rank 0"));
    EXPECT_TRUE(holds(text, "that (returns HookTask) on rank 1"));
  });
}

TEST(TheRecord, HasBytesAndTimesOfEachBucket) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096});
    ddp.set_hook([&](GradientBucket& bucket) -> HookTask {
      at::Tensor wire;
      bucket.encode([&] {
        wire = bucket.values().to(torch::kBFloat16);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
      co_await bucket.all_reduce(wire);
      bucket.decode([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        bucket.values().copy_(wire);
      });
    });
    loss_of(net, group.rank(), 0).backward();
    ASSERT_GT(ddp.record().buckets.size(), 1U);
    for (const auto& bucket : ddp.record().buckets) {
      EXPECT_EQ(bucket.wire_bytes, bucket.bytes / 2);
      EXPECT_GE(bucket.encode, std::chrono::milliseconds(1));
      EXPECT_GE(bucket.decode, std::chrono::milliseconds(2));
      EXPECT_GE(bucket.done, bucket.launched + bucket.encode);
    }
  });
  with_ddp_groups(2, [](ProcessGroup& group) {
    TestNet net;
    Ddp plain(*net, group);
    loss_of(net, group.rank(), 0).backward();
    for (const auto& bucket : plain.record().buckets) EXPECT_EQ(bucket.wire_bytes, bucket.bytes);
  });
}

}  // namespace
}  // namespace lockstep
