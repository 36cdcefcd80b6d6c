// The bytes that all ranks of a host load and store in a step, counted: docs/sharding.md.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/kernels/moved_bytes.h"
#include "lockstep/train/adam.h"

namespace lockstep {
namespace {

// What all ranks move in a step.
struct Moved {
  std::uint64_t bytes = 0;
  std::uint64_t reloaded = 0;
  std::uint64_t num_elements = 0;  // of the parameters
  std::size_t num_buckets = 0;
};

// In the second step: the first one makes buckets of its own.
Moved moved_in_step(int num_ranks, std::int64_t width, const DdpOptions& options) {
  Moved all;
  std::mutex lock;
  with_groups(num_ranks, [&](ProcessGroup& group) {
    at::set_num_threads(1);
    torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(512, 512).bias(false)),
                              torch::nn::Linear(torch::nn::LinearOptions(512, width).bias(false)),
                              torch::nn::Linear(torch::nn::LinearOptions(width, 512).bias(false)));
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
    std::uint64_t num_elements = 0;
    for (const auto& parameter : net->parameters()) {
      num_elements += static_cast<std::uint64_t>(parameter.numel());
    }
    const auto& [loaded, stored, reloaded] = count.bytes();
    const std::scoped_lock held(lock);
    all.bytes += loaded + stored;
    all.reloaded += reloaded;
    all.num_elements = num_elements;
    all.num_buckets = ddp.plan().buckets.size();
  });
  return all;
}

// Bytes per element of the parameters.
struct Formula {
  std::uint64_t moved = 0;
  std::uint64_t reloaded = 0;
};

// Calls whose size does not depend on the width would be a few KiB of 5 MiB.
constexpr double kSmallCalls = 0.002;

void expect_about(std::uint64_t bytes, std::uint64_t expected) {
  const auto about = static_cast<double>(expected);
  EXPECT_NEAR(static_cast<double>(bytes), about, about * kSmallCalls);
}

// The difference of two widths is exact: those calls cancel.
void expect_moved(int num_ranks, const DdpOptions& options, const Formula& formula) {
  const auto narrow = moved_in_step(num_ranks, 1024, options);
  const auto wide = moved_in_step(num_ranks, 1536, options);
  ASSERT_EQ(wide.num_buckets, narrow.num_buckets);
  const auto more = wide.num_elements - narrow.num_elements;
  EXPECT_EQ(wide.bytes - narrow.bytes, formula.moved * more);
  EXPECT_EQ(wide.reloaded - narrow.reloaded, formula.reloaded * more);
  expect_about(narrow.bytes, formula.moved * narrow.num_elements);
  expect_about(narrow.reloaded, formula.reloaded * narrow.num_elements);
}

TEST(MovedBytes, AreThoseOfTheTableInShardingMd) {
  for (const int ranks : {2, 8}) {
    SCOPED_TRACE(ranks);
    const auto w = static_cast<std::uint64_t>(ranks);
    expect_moved(ranks, {}, {.moved = 36 * w});
    expect_moved(ranks, {.shard = Shard::optimizer},
                 {.moved = 8 * w + 28, .reloaded = 4 * (w - 1)});
    expect_moved(ranks, {.shard = Shard::gradients},
                 {.moved = 8 * w + 36, .reloaded = 4 * (w - 1)});
    expect_moved(ranks, {.shard = Shard::optimizer, .copies = Copies::per_host},
                 {.moved = 4 * w + 32});
    expect_moved(ranks, {.shard = Shard::gradients, .copies = Copies::per_host},
                 {.moved = 4 * w + 32});
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
