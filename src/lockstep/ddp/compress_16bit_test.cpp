// Gradients in 16 bits on the wire, against the same rounding in one process; and the choice of the
// fastest hook.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/ddp/compress_16bit.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/hook_choice_internal.h"
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
  ::testing::internal::CaptureStderr();
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
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
  const auto text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(holds(text, "rank 0 | warning: hook fp16 got finite gradients"));
  EXPECT_TRUE(holds(text, "in backward 2"));
  EXPECT_EQ(text.find("warning", text.find("warning") + 1), std::string::npos) << text;
}

TEST(FastestOf, DecidesByTheTotalTime) {
  const std::vector<HookTrial> trials{
      {.total = 0.8},
      {.encode = 0.1, .decode = 0.1, .total = 0.5, .wire_bytes = 12.5 * (1 << 20)},
      {.encode = 0.3, .total = 0.5}};
  EXPECT_EQ(fastest(trials), 1U);
  const std::vector<GradientHook> hooks{all_reduce_hook(), compress_bf16(), compress_fp16()};
  const auto text = describe_choice(25 << 20, hooks, trials);
  EXPECT_EQ(text,
            "buckets of 25.0 MiB: bf16: 100.0 ms encode + 300.0 ms wire (12.5 MiB) + 100.0 ms "
            "decode = 500.0 ms; none 800.0 ms, fp16 500.0 ms");
}

TEST(FastestOf, MeasuresOneBucketPerSize) {
  const std::vector<std::int64_t> bytes{100, 1000, 1900, 150, 2000, 0, 900};
  EXPECT_EQ(represented_by(bytes), (std::vector<std::size_t>{0, 1, 1, 0, 4, 5, 1}));
}

TEST(FastestOf, UsesTheFirstCandidateOnOneHostAndPrintsWhy) {
  ::testing::internal::CaptureStderr();
  with_ddp_groups(2, [](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group);
    ddp.set_hook(GradientHook::fastest_of({all_reduce_hook(), compress_bf16()}));
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      net->forward(batch_of(group.rank(), step)).square().mean().backward();
      for (const auto& bucket : ddp.record().buckets) EXPECT_EQ(bucket.wire_bytes, bucket.bytes);
    }
  });
  const auto text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(holds(text, "rank 0 | compression: none: backend shm")) << text;
  EXPECT_EQ(text.find("compression", text.find("compression") + 1), std::string::npos) << text;
}

// Each candidate sleeps on one rank, in buckets above or below a size: it loses there on all ranks.
TEST(FastestOf, ChoosesTheSameOnAllRanksBetweenHostsAndAgainAfterRebind) {
  constexpr std::int64_t kLarge = 4000;  // bytes
  ::testing::internal::CaptureStderr();
  const auto body = [&](ProcessGroup& group) {
    const auto other = group.split(0);
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4096});
    std::vector<int> used;  // by bucket of the step
    const auto candidate = [&](int number, const std::string& name) {
      return GradientHook(
          [&used, number](GradientBucket& bucket) {
            const bool is_large = bucket.values().nbytes() > kLarge;
            if (!bucket.is_trial()) {
              used.push_back(number);
            } else if (bucket.rank() == number && is_large == (number == 0)) {
              std::this_thread::sleep_for(std::chrono::milliseconds(300));
            }
            return bucket.all_reduce(bucket.values());
          },
          name);
    };
    ddp.set_hook(GradientHook::fastest_of({candidate(0, "for small"), candidate(1, "for large")}));
    const auto train = [&] {
      std::vector<int> expected;
      for (int step = 0; step < 3; ++step) {
        expected.clear();
        used.clear();
        net->zero_grad();
        net->forward(batch_of(group.rank(), step)).square().mean().backward();
        for (const auto& bucket : ddp.record().buckets) {
          expected.push_back(step == 2 && bucket.bytes > kLarge ? 1 : 0);
        }
        EXPECT_EQ(used, expected) << "step " << step;
      }
      EXPECT_GT(std::count(expected.begin(), expected.end(), 0), 0);
      EXPECT_GT(std::count(expected.begin(), expected.end(), 1), 0);
    };
    train();
    ddp.rebind(other);
    train();
  };
  with_groups(2, body, {.timeout = std::chrono::seconds(30), .backend = Backend::tcp});
  const auto text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(holds(text, "rank 0 | compression: buckets of "));
  EXPECT_TRUE(holds(text, " KiB: for small: "));
  EXPECT_TRUE(holds(text, " KiB: for large: "));
  EXPECT_EQ(text.find("rank 1 | compression"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
