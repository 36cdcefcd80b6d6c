// Sharded gradients with one copy of the parameters per rank, over a transport without shared
// memory, as between hosts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/clip.h"
#include "test_sharded_net_internal.h"

namespace lockstep {
namespace {

const ProcessGroupOptions kOverTcp{.timeout = std::chrono::seconds(20), .backend = Backend::tcp};
constexpr std::int64_t kLarge = 700'000;  // several parts of shards.h

// Trains in the same way with and without shards.
template <typename Train>
void expect_same(int size, const Train& train) {
  with_groups(
      size,
      [&](ProcessGroup& group) {
        const auto plain = train(group, DdpOptions{.bucket_bytes = 200 << 10});
        const auto sharded =
            train(group, DdpOptions{.bucket_bytes = 200 << 10, .shard = Shard::gradients});
        for (std::size_t i = 0; i < plain.size(); ++i) {
          EXPECT_TRUE(are_same(plain[i], sharded[i])) << i << ", " << size << " ranks";
        }
      },
      kOverTcp);
}

TEST(ShardedGradientsBetweenHosts, TrainAsPlainDdp) {
  for (const int size : {1, 2, 3}) {
    expect_same(size, [](ProcessGroup& group, const DdpOptions& options) {
      ShardedNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, options);
      const auto optimizer = adam_w(ddp.flat());
      for (int step = 0; step < 4; ++step) {
        const auto x = images(group.rank(), step, at::kFloat);
        net->forward(x, step % 2 == 0).square().mean().backward();
        clip_grad_norm(ddp.flat(), 0.5);
        optimizer->step();
        optimizer->zero_grad();
      }
      return copies_of_parameters(*net);
    });
  }
}

// No rank changes the parts of `b`.
TEST(ShardedGradientsBetweenHosts, KeepParametersWithoutAGradient) {
  expect_same(2, [](ProcessGroup& group, const DdpOptions& options) {
    const auto net = weights({"a", "b", "c"}, kLarge);
    fill(*net, 1);
    Ddp ddp(*net, group, options);
    AdamW optimizer(ddp.flat());
    for (int step = 0; step < 2; ++step) {
      (loss_with((*net)["a"], 1 + group.rank()) + loss_with((*net)["c"], 2)).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    return copies_of_parameters(*net);
  });
}

// Some parts of the parameters have been sent by then, and others have not.
TEST(ShardedGradientsBetweenHosts, StayThoseOfTheLastStepIfARankIsLostInsideAStep) {
  with_groups(
      2,
      [](ProcessGroup& group) {
        const auto net = weights({"a", "b", "c"}, kLarge);
        Ddp ddp(*net, group, {.shard = Shard::gradients});
        auto& flat = ddp.flat();
        (void)flat.owned();
        (loss_with((*net)["a"], 1) + loss_with((*net)["b"], 2)).backward();
        ASSERT_GE(flat.shards().parts(0).size(), 3U);
        const auto before = flat.values(0).clone();
        int num_updated = 0;
        const auto message = message_of([&] {
          flat.update([&](int segment, const Shards::Part& part) {
            if (group.rank() == 1 && num_updated == 2) throw UsageError("this rank ends");
            for (const auto& run : part.runs) {
              flat.next_values(segment).narrow(0, run.begin, run.count).fill_(5);
            }
            ++num_updated;
            return true;
          });
        });
        EXPECT_TRUE(holds(message, "rank 1") || group.rank() == 1) << message;
        EXPECT_TRUE(are_same(flat.values(0), before));
        EXPECT_TRUE(is_filled((*net)["a"], 0)) << "the module has the same memory";
        EXPECT_EQ(message_of([&] { flat.expect_intact(); }), "");
      },
      kOverTcp);
}

}  // namespace
}  // namespace lockstep
