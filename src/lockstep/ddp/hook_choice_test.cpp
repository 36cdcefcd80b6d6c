// GradientHook::fastest_of(): the decision, what is measured, and that all ranks choose the same.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/ddp/compress_16bit.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/hook_choice_internal.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

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
  const auto text = log_of(2, [](ProcessGroup& group) {
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
  EXPECT_TRUE(holds(text, "rank 0 | compression: none: backend ")) << text;
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

TEST(FastestOf, IsRefusedWithoutCandidatesAndInsideAnotherHook) {
  EXPECT_TRUE(holds(message_of([] { (void)GradientHook::fastest_of({}); }), "needs a candidate"));
  const auto inner = GradientHook::fastest_of({all_reduce_hook()});
  EXPECT_TRUE(holds(message_of([&] { (void)GradientHook::fastest_of({inner}); }),
                    "list its candidates instead"));
  with_ddp_groups(2, [&](ProcessGroup& group) {
    const auto net = weights({"a"});
    Ddp ddp(*net, group);
    ddp.set_hook(compress_bf16(inner));
    const auto text = message_of([&] { loss_with((*net)["a"], 1).backward(); });
    EXPECT_TRUE(holds(text, "fastest of none was wrapped by another hook"));
  });
}

}  // namespace
}  // namespace lockstep
