// A hook that throws: the step fails on all ranks, on shared memory and over TCP, and the next step
// is correct.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_hooks_internal.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

constexpr int kSize = 3;
constexpr int kNever = 100;

// Where the hook throws on this rank in a step.
struct Throws {
  int bucket = kNever;
  int place = 0;  // 0: before the first call, 1: after it, 2: between calls, 3: after the last one
};

class HookFailure : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, HookFailure, ::testing::Values(Backend::shm, Backend::tcp),
                         [](const auto& each) {
                           return std::string(each.param == Backend::shm ? "shm" : "tcp");
                         });

// Four buckets. `plan` says where ranks throw, by step.
void expect_clean_failures(Backend backend, bool simple,
                           const std::vector<std::vector<Throws>>& plan) {
  const auto body = [&](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c", "d"}, 70);
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    Throws where;
    int commits = 0;
    const auto check = [&](const GradientBucket& bucket, int place) {
      if (bucket.index() == where.bucket && place == where.place) {
        throw std::out_of_range("no such block");
      }
    };
    if (simple) {
      ddp.set_hook([&](GradientBucket& bucket) {
        check(bucket, 0);
        auto work = bucket.all_reduce(bucket.values());
        check(bucket, 1);
        return work;
      });
    } else {
      ddp.set_hook([&](GradientBucket& bucket) -> HookTask {
        const auto part = (bucket.values().numel() + kSize - 1) / kSize;
        auto padded = torch::zeros({part * kSize}, bucket.values().options());
        auto own = torch::zeros({part}, bucket.values().options());
        auto swapped = torch::zeros({part * kSize}, bucket.values().options());
        padded.narrow(0, 0, bucket.values().numel()).copy_(bucket.values());
        bucket.on_commit([&] { ++commits; });
        check(bucket, 0);
        const auto first = bucket.all_to_all(swapped, padded);
        check(bucket, 1);
        co_await first;
        own.copy_(swapped.view({kSize, part}).sum(0).div_(bucket.total_weight()));
        check(bucket, 2);
        co_await bucket.all_gather(padded, own);
        check(bucket, 3);
        bucket.values().copy_(padded.narrow(0, 0, bucket.values().numel()));
      });
    }
    const auto backward = [&] {
      auto loss = loss_with((*net)["a"], group.rank() + 1);
      for (const auto* name : {"b", "c", "d"}) loss = loss + loss_with((*net)[name], 6);
      loss.backward();
    };
    for (const auto& step : plan) {
      where = step[static_cast<std::size_t>(group.rank())];
      commits = 0;
      if (where.bucket != kNever) {
        EXPECT_THROW(backward(), std::out_of_range);
      } else {
        const auto text = message_of(backward);
        EXPECT_TRUE(holds(text, "the backward of rank ")) << "rank " << group.rank();
      }
      EXPECT_EQ(commits, 0);
      EXPECT_FALSE(ddp.should_step());
      net->zero_grad();
      where = {};
      backward();
      EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(kSize)));
      EXPECT_TRUE(is_filled((*net)["d"].grad(), 6));
      EXPECT_EQ(commits, simple ? 0 : 4);
      net->zero_grad();
    }
  };
  with_ddp_groups(kSize, body, {.timeout = std::chrono::seconds(30), .backend = backend});
}

TEST_P(HookFailure, OfOneRankFailsTheStepOnAllRanks) {
  std::vector<std::vector<Throws>> plan;
  for (const int bucket : {0, 2, 3}) {
    for (int place = 0; place < 4; ++place) {
      std::vector<Throws> step(kSize);
      step[static_cast<std::size_t>(bucket + place) % kSize] = {bucket, place};
      plan.push_back(step);
    }
  }
  expect_clean_failures(GetParam(), /*simple=*/false, plan);
}

TEST_P(HookFailure, OfSeveralRanksInDifferentPlaces) {
  expect_clean_failures(GetParam(), /*simple=*/false,
                        {{{0, 0}, {0, 0}, {0, 0}},
                         {{3, 3}, {0, 0}, {}},
                         {{3, 3}, {0, 0}, {2, 2}},
                         {{}, {1, 1}, {3, 2}},
                         {{3, 3}, {3, 3}, {3, 3}}});
}

TEST_P(HookFailure, OfTheSimpleForm) {
  expect_clean_failures(
      GetParam(), /*simple=*/true,
      {{{}, {0, 0}, {}}, {{3, 1}, {}, {}}, {{3, 0}, {1, 1}, {0, 0}}, {{3, 1}, {3, 1}, {3, 1}}});
}

// The rank that sits out runs the hook too.
TEST_P(HookFailure, OnARankThatSitsOut) {
  with_ddp_groups(2,
                  [](ProcessGroup& group) {
                    const auto net = weights({"a", "b"});
                    Ddp ddp(*net, group, {.bucket_bytes = 1});
                    bool fails = true;
                    ddp.set_hook([&](GradientBucket& bucket) {
                      if (fails && bucket.index() == 1 && bucket.rank() == 1) {
                        throw std::out_of_range("no such block");
                      }
                      return bucket.all_reduce(bucket.values());
                    });
                    const auto step = [&] {
                      if (group.rank() == 1) return ddp.sit_out();
                      (loss_with((*net)["a"], 2) + loss_with((*net)["b"], 3)).backward();
                    };
                    if (group.rank() == 1) {
                      EXPECT_THROW(step(), std::out_of_range);
                    } else {
                      EXPECT_TRUE(holds(message_of(step), "the backward of rank 1 failed"));
                    }
                    fails = false;
                    net->zero_grad();
                    step();
                    EXPECT_TRUE(group.rank() == 1 || is_filled((*net)["a"].grad(), 2));
                  },
                  {.timeout = std::chrono::seconds(30), .backend = GetParam()});
}

}  // namespace
}  // namespace lockstep
