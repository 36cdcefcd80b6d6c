// Gradients in 16 bits on the wire, against the same rounding in one process.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "lockstep/ddp/compress_16bit.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_hooks_internal.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors local_gradients(int rank, int step) {
  TestNet net;
  fill(*net, 1);
  net->forward(batch_of(rank, step)).square().mean().backward();
  return gradients_of(*net);
}

// Each rank's gradient rounded, the sum in float32, divided, rounded again.
Tensors expected_mean(int size, int step, at::ScalarType wire) {
  std::vector<Tensors> of_ranks;
  for (int rank = 0; rank < size; ++rank) {
    of_ranks.push_back(local_gradients(rank, step));
    for (auto& each : of_ranks.back()) each = each.to(wire).to(torch::kFloat);
  }
  auto mean = serial_mean(of_ranks, size);
  for (auto& each : mean) each = each.to(wire).to(torch::kFloat);
  return mean;
}

class Compress16Bit : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Compress16Bit, ::testing::Values(1, 2, 3));

void expect_rounded(int size, const std::vector<GradientHook>& hooks, at::ScalarType wire) {
  const auto expected = expected_mean(size, 2, wire);
  with_ddp_groups(size, [&](ProcessGroup& group) {
    for (const auto& hook : hooks) {
      TestNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.bucket_bytes = 4096});
      ddp.set_hook(hook);
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        net->forward(batch_of(group.rank(), step)).square().mean().backward();
      }
      EXPECT_TRUE(are_equal(gradients_of(*net), expected)) << hook.name();
      for (const auto& bucket : ddp.record().buckets) {
        EXPECT_EQ(bucket.wire_bytes, bucket.bytes / 2);
        EXPECT_GT(bucket.encode.count(), 0);
        EXPECT_GT(bucket.decode.count(), 0);
      }
      EXPECT_FALSE(ddp.non_finite());
    }
  });
}

TEST_P(Compress16Bit, RoundsEachContributionAndTheMeanToBfloat16) {
  expect_rounded(GetParam(), {compress_bf16(), compress_bf16({reduce_in_one_call, "one call"})},
                 torch::kBFloat16);
}

TEST_P(Compress16Bit, RoundsEachContributionAndTheMeanToFloat16) {
  expect_rounded(GetParam(), {compress_fp16(), compress_fp16(compress_bf16())}, torch::kHalf);
}

TEST_P(Compress16Bit, KeepsDoubleAndAlreadyNarrowParameters) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    for (const auto dtype : {torch::kDouble, torch::kBFloat16, torch::kHalf}) {
      const auto net = weights({"a"}, 40);
      net->to(dtype);
      Ddp ddp(*net, group);
      ddp.set_hook(compress_bf16());
      loss_with((*net)["a"], 1.5 * (group.rank() + 1)).backward();  // exact in 8 bits
      EXPECT_TRUE(is_filled((*net)["a"].grad(), 1.5 * mean_rank(group.size()))) << dtype;
      EXPECT_EQ((*net)["a"].grad().scalar_type(), dtype);
    }
  });
}

TEST_P(Compress16Bit, OverflowOfFloat16IsReportedOnAllRanks) {
  const auto text = log_of(GetParam(), [](ProcessGroup& group) {
    for (const bool is_fp16 : {true, false}) {
      const auto net = weights({"a", "b"});
      Ddp ddp(*net, group, {.bucket_bytes = 1});
      ddp.set_hook(is_fp16 ? compress_fp16() : compress_bf16());
      for (int step = 0; step < 4; ++step) {
        const bool large = step % 2 == 1;
        const double gradient = large && group.rank() == 0 ? 65600 : 1;
        (loss_with((*net)["a"], gradient) + loss_with((*net)["b"], 1)).backward();
        EXPECT_EQ(ddp.non_finite(), large && is_fp16);
        EXPECT_TRUE(ddp.non_finite_parameters().empty());
        net->zero_grad();
      }
    }
  });
  if (test_device().is_cuda()) return;  // a step does not read what is on the device
  EXPECT_TRUE(holds(text, "rank 0 | warning: hook fp16 got finite gradients"));
  EXPECT_TRUE(holds(text, "in backward 2"));
  EXPECT_EQ(text.find("warning", text.find("warning") + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
