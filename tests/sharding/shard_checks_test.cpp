// What only one rank has under shards is checked by that rank; and steps whose micro-batches are
// reduced one by one.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/collectives/gather_values.h"
#include "lockstep/collectives/shared_region.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/clip.h"
#include "lockstep/train/sgd.h"

namespace lockstep {
namespace {

// A rank's shard of a parameter changes behind its back: the rank reports it, no other one.
TEST(ShardChecks, ReportAForeignWriteToTheSharedCopy) {
  with_groups(2, [](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.shard = Shard::optimizer, .copies = Copies::per_host});
    SGD optimizer(ddp.flat(), {.lr = 0.1});
    net->forward(batch_of(group.rank(), 0)).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
    const auto owned = ddp.flat().owned();
    if (group.rank() == 1) {
      ASSERT_FALSE(owned.empty());
      // As a wrong pointer would: not by a function of lockstep that hands out this memory.
      const auto& last = owned.back();
      const auto& slot = ddp.flat().layout().slots[static_cast<std::size_t>(last.parameter)];
      auto shared = ddp.flat().old_values(slot.segment);
      shared[slot.begin + last.begin] += 1;
    }
    const auto message = message_of([&] { ddp.flat().expect_intact(); });
    EXPECT_EQ(message.empty(), group.rank() == 0) << message;
    if (group.rank() == 0) return;
    EXPECT_TRUE(holds(message, owned.back().name));
    EXPECT_TRUE(holds(message, "not what this rank wrote in the last step"));
    EXPECT_TRUE(holds(message, "Resume from a checkpoint"));
  });
}

// The ranks that have a piece of state.
std::vector<int> ranks_with(const std::vector<at::Tensor>& state, const ProcessGroup& group) {
  const auto counts = gather_values(group, static_cast<std::int64_t>(state.size()));
  std::vector<int> ranks;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (counts[static_cast<std::size_t>(rank)] > 0) ranks.push_back(rank);
  }
  return ranks;
}

TEST(ShardChecks, ReportAForeignWriteToTheState) {
  for (const auto shard : {Shard::none, Shard::optimizer, Shard::gradients}) {
    with_ddp_groups(2, [&](ProcessGroup& group) {
      TestNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = shard});
      AdamW optimizer(ddp.flat());
      std::vector<at::Tensor> state;
      for (const auto& tensor : optimizer.sharded_tensors()) {
        for (const auto& piece : tensor.pieces) state.push_back(piece.values);
      }
      const auto step = [&](int number) {
        net->forward(batch_of(group.rank(), number)).square().mean().backward();
        optimizer.step();
        optimizer.zero_grad();
        (void)net->parameters()[0].sum().item<float>();  // a GPU has computed all of it
      };
      step(0);
      // Of one rank only: the first one that reports it leaves, and the others then report that.
      const auto candidates = ranks_with(state, group);
      EXPECT_EQ(candidates.empty(), shard == Shard::none);
      const int changed = candidates.empty() ? -1 : candidates.front();
      if (group.rank() == changed) state.front()[0] += 1;
      // On a GPU the step after the comparison reports it.
      const int last = test_device().is_cpu() || shard == Shard::none ? 1 : 2;
      const auto message = message_of([&] {
        for (int number = 1; number <= last; ++number) step(number);
      });
      if (group.rank() == changed) {
        EXPECT_TRUE(holds(message, "AdamW: exp_avg of "));
        EXPECT_TRUE(holds(message, test_device().is_cpu()
                                       ? "not what the last step wrote"
                                       : "not what one of the last steps wrote"));
      } else if (!message.empty()) {
        EXPECT_TRUE(holds(message, "rank " + std::to_string(changed) + " has left"));
      }
    });
  }
}

struct Trained {
  std::vector<at::Tensor> parameters;
  std::vector<double> norms;
};

Trained train(const ProcessGroup& group, DdpOptions options, bool sits_out) {
  TestNet net;
  fill(*net, 1);
  options.bucket_bytes = 100;
  Ddp ddp(*net, group, options);
  SGD optimizer(ddp.flat(), {.lr = 0.1, .momentum = 0.9});
  Trained trained;
  for (int step = 0; step < 6; ++step) {
    for (int part = 0; part < options.accumulate; ++part) {
      if (sits_out && group.size() > 1 && group.rank() == (step + part) % group.size()) {
        ddp.sit_out();
        continue;
      }
      const auto x = batch_of(group.rank(), 10 * step + part);
      if (options.normalize == Normalize::by_count) ddp.count(group.rank() + part);
      net->forward(x, /*with_branch=*/part % 2 == 0).square().mean().backward();
      if (!options.reduce_each_micro_batch) continue;
      for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
      EXPECT_EQ(ddp.should_step(), part + 1 == options.accumulate);
    }
    if (!ddp.should_step()) continue;
    trained.norms.push_back(clip_grad_norm(ddp.flat(), 0.5));
    optimizer.step();
    optimizer.zero_grad();
  }
  for (const auto& parameter : net->parameters()) trained.parameters.push_back(parameter.clone());
  return trained;
}

void expect_close(const Trained& plain, const Trained& parts) {
  ASSERT_EQ(plain.norms.size(), parts.norms.size());
  for (std::size_t i = 0; i < plain.norms.size(); ++i) {
    EXPECT_NEAR(plain.norms[i], parts.norms[i], 1e-5 * plain.norms[i]);
  }
  for (std::size_t i = 0; i < plain.parameters.size(); ++i) {
    EXPECT_TRUE(torch::allclose(plain.parameters[i], parts.parameters[i], 1e-4, 1e-6)) << i;
  }
}

class EachMicroBatch : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(SitsOut, EachMicroBatch, ::testing::Bool());

TEST_P(EachMicroBatch, GivesTheAverageOfTheStep) {
  for (const auto normalize : {Normalize::by_rank, Normalize::by_count}) {
    for (const int size : {1, 2, 3}) {
      with_groups(size, [&](ProcessGroup& group) {
        DdpOptions options{.normalize = normalize, .accumulate = 3};
        const auto plain = train(group, options, GetParam());
        options.shard = Shard::gradients;
        options.reduce_each_micro_batch = true;
        for (const auto copies : {Copies::per_rank, Copies::per_host}) {
          options.copies = copies;
          expect_close(plain, train(group, options, GetParam()));
        }
      });
    }
  }
}

// Gradients whose sums are exact are bit-identical in any order.
TEST(EachMicroBatch, IsExactWhereSumsAre) {
  for (const int size : {1, 2, 4}) {
    with_groups(size, [](ProcessGroup& group) {
      auto net = weights({"a", "b"});
      Ddp ddp(*net, group,
              {.accumulate = 2, .shard = Shard::gradients, .reduce_each_micro_batch = true});
      (void)ddp.flat().owned();
      for (int step = 0; step < 3; ++step) {
        loss_with(net->parameters()[0], group.rank() + 1).backward();
        loss_with(net->parameters()[1], 3 * (group.rank() + 1)).backward();
        EXPECT_TRUE(ddp.should_step());
        for (const auto& owned : ddp.flat().owned()) {
          const double factor = owned.name == "a" ? 0.5 : 1.5;
          EXPECT_TRUE(is_filled(owned.gradient, factor * mean_rank(group.size()))) << owned.name;
        }
        net->zero_grad();
      }
    });
  }
}

TEST(EachMicroBatch, NeedsShardedGradients) {
  with_groups(1, [](ProcessGroup& group) {
    TestNet net;
    const auto message = message_of([&] {
      const Ddp ddp(*net, group, {.shard = Shard::optimizer, .reduce_each_micro_batch = true});
    });
    EXPECT_TRUE(holds(message, "only Shard::gradients gives back"));
  });
}

}  // namespace
}  // namespace lockstep
