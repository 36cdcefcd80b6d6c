// The bytes that all ranks of a host load and store in a step, counted: docs/sharding.md.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/kernels/moved_bytes.h"
#include "lockstep/train/adam.h"

namespace lockstep {
namespace {

struct PerParameter {
  double moved = 0;
  double reloaded = 0;
};

// In the second step: the first one makes buckets of its own.
PerParameter bytes_of_step(int num_ranks, const DdpOptions& options) {
  PerParameter all;
  std::mutex lock;
  with_groups(num_ranks, [&](ProcessGroup& group) {
    at::set_num_threads(1);
    torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(512, 512).bias(false)),
                              torch::nn::Linear(torch::nn::LinearOptions(512, 1024).bias(false)),
                              torch::nn::Linear(torch::nn::LinearOptions(1024, 512).bias(false)));
    Ddp ddp(*net, group, options);
    AdamW optimizer(ddp.flat());
    const auto step = [&] {
      net->forward(torch::ones({2, 512})).square().mean().backward();
      optimizer.step();
      optimizer.zero_grad();
    };
    step();
    const CountMovedBytes count;
    step();
    double num_parameters = 0;
    for (const auto& parameter : net->parameters()) {
      num_parameters += static_cast<double>(parameter.numel());
    }
    const auto& [loaded, stored, reloaded] = count.bytes();
    const std::scoped_lock held(lock);
    all.moved += static_cast<double>(loaded + stored) / num_parameters;
    all.reloaded += static_cast<double>(reloaded) / num_parameters;
  });
  return all;
}

// The calls with flags and sums of the shards are a few KiB of 5 MiB.
constexpr double kSmallCalls = 0.002;

TEST(MovedBytes, AreThoseOfTheTableInShardingMd) {
  for (const int ranks : {2, 8}) {
    const double w = ranks;
    const auto plain = bytes_of_step(ranks, {});
    EXPECT_NEAR(plain.moved, 36 * w, 36 * w * kSmallCalls) << ranks;
    EXPECT_EQ(plain.reloaded, 0);

    const auto per_rank = bytes_of_step(ranks, {.shard = Shard::optimizer});
    EXPECT_NEAR(per_rank.moved, 8 * w + 28, (8 * w + 28) * kSmallCalls) << ranks;
    EXPECT_NEAR(per_rank.reloaded, 4 * (w - 1), 4 * w * kSmallCalls) << ranks;

    const auto waiting = bytes_of_step(ranks, {.shard = Shard::gradients});
    EXPECT_NEAR(waiting.moved, 8 * w + 36, (8 * w + 36) * kSmallCalls) << ranks;
    EXPECT_NEAR(waiting.reloaded, 4 * (w - 1), 4 * w * kSmallCalls) << ranks;

    const auto per_host =
        bytes_of_step(ranks, {.shard = Shard::optimizer, .copies = Copies::per_host});
    EXPECT_NEAR(per_host.moved, 4 * w + 32, (4 * w + 32) * kSmallCalls) << ranks;
    EXPECT_EQ(per_host.reloaded, 0);

    const auto packed =
        bytes_of_step(ranks, {.shard = Shard::gradients, .copies = Copies::per_host});
    EXPECT_NEAR(packed.moved, 4 * w + 32, (4 * w + 32) * kSmallCalls) << ranks;
    EXPECT_EQ(packed.reloaded, 0);
  }
}

TEST(MovedBytes, TheInnermostCountCounts) {
  const CountMovedBytes outer;
  note_moved({.loaded = 1});
  {
    const CountMovedBytes inner;
    note_moved({.loaded = 2, .stored = 3, .reloaded = 4});
    EXPECT_EQ(inner.bytes().loaded, 2U);
    EXPECT_EQ(inner.bytes().stored, 3U);
    EXPECT_EQ(inner.bytes().reloaded, 4U);
  }
  note_moved({.stored = 5});
  EXPECT_EQ(outer.bytes().loaded, 1U);
  EXPECT_EQ(outer.bytes().stored, 5U);
}

}  // namespace
}  // namespace lockstep
