// backward() leaves averages that are bit-identical to the sum tree, for any bucket size.
#include "lockstep/ddp/ddp.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/flat/walk.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

// The average of all ranks' gradients of `step`, computed one rank after the other in one process.
Tensors serial_average(int size, int step, bool with_branch = true) {
  std::vector<Tensors> all;
  for (int rank = 0; rank < size; ++rank) {
    TestNet net;
    fill(*net, 1);
    net->forward(batch_of(rank, step), with_branch).square().mean().backward();
    all.push_back(gradients_of(*net));
  }
  Tensors averaged;
  for (std::size_t i = 0; i < all.front().size(); ++i) {
    if (!all.front()[i].defined()) {
      averaged.emplace_back();
      continue;
    }
    Tensors parts;
    for (const auto& of_rank : all) parts.push_back(of_rank[i]);
    averaged.push_back(tree_sum(parts) / static_cast<float>(size));
  }
  return averaged;
}

void expect_equal(const Tensors& got, const Tensors& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), expected[i].defined()) << i;
    if (got[i].defined()) {
      EXPECT_TRUE(torch::equal(got[i], expected[i])) << i;
    }
  }
}

class DdpOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DdpOfSize, ::testing::Range(1, 6));

TEST_P(DdpOfSize, AveragesGradientsBitIdenticalToTheTree) {
  const int size = GetParam();
  std::vector<Tensors> expected;
  for (int step = 0; step < 3; ++step) expected.push_back(serial_average(size, step));
  for (const std::size_t bucket_bytes : {1UL, 4096UL, kDefaultBucketBytes, kAutotune}) {
    with_ddp_groups(size, [&](ProcessGroup& group) {
      TestNet net;
      fill(*net, group.rank() == 0 ? 1 : 9);
      Ddp ddp(*net, group, {.bucket_bytes = bucket_bytes});
      for (int step = 0; step < 3; ++step) {
        net->forward(batch_of(group.rank(), step)).square().mean().backward();
        expect_equal(gradients_of(*net), expected[static_cast<std::size_t>(step)]);
        EXPECT_TRUE(ddp.should_step());
        EXPECT_FALSE(ddp.non_finite());
        net->zero_grad();
      }
    });
  }
}

TEST_P(DdpOfSize, TrainsReplicasThatStayEqual) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    TestNet net;
    fill(*net, group.rank());
    Ddp ddp(*net, group);
    torch::optim::AdamW optimizer(net->parameters(), 1e-2);
    for (int step = 0; step < 5; ++step) {
      net->forward(batch_of(group.rank(), step)).square().mean().backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    const auto own = digest_of(ddp.flat().values(0));
    auto work = group.barrier({.flags = CallFlags{.equal = own}});
    work.wait();
    EXPECT_TRUE(work.flags().all_equal);
  });
}

TEST(Ddp, KeepsParameterNamesAndGrad) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    TestNet net;
    Ddp ddp(*net, group);
    EXPECT_TRUE(net->named_parameters().contains("first.weight"));
    net->forward(batch_of(group.rank(), 0)).sum().backward();
    EXPECT_TRUE(net->first->weight.grad().is_alias_of(ddp.flat().gradients(0)));
    EXPECT_TRUE(net->first->weight.is_alias_of(ddp.flat().values(0)));
  });
}

TEST(Ddp, StartsBucketsWhileGradientsStillArrive) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    torch::nn::Sequential net;
    for (int i = 0; i < 8; ++i) net->push_back(torch::nn::Linear(64, 64));
    net->to(test_device());
    Ddp ddp(*net, group, {.bucket_bytes = 32 << 10});
    for (int step = 0; step < 2; ++step) {
      net->forward(batch_of(group.rank(), step, 4, 64)).sum().backward();
    }
    const auto& record = ddp.record();
    ASSERT_GE(record.buckets.size(), 4U);
    EXPECT_EQ(record.hooks, 16);
    EXPECT_LT(record.buckets.front().hooks_before, 8);
    for (std::size_t i = 0; i + 1 < record.buckets.size(); ++i) {
      EXPECT_LT(record.buckets[i].hooks_before, 16);
      EXPECT_LE(record.buckets[i].launched, record.buckets[i + 1].launched);
      EXPECT_LE(record.buckets[i].ready, record.buckets[i].launched);
    }
  });
}

TEST(Ddp, ReducesInOrderWhenLaterBucketsAreCompleteFirst) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    // Registered in the order of backward: gradients arrive in the reverse of the expected order.
    torch::nn::ModuleList list;
    const auto options = torch::nn::LinearOptions(32, 32).bias(false);
    for (int i = 0; i < 4; ++i) list->push_back(torch::nn::Linear(options));
    list->to(test_device());
    Ddp ddp(*list, group, {.bucket_bytes = 1});
    const auto run = [&] {
      auto x = batch_of(group.rank(), 0, 2, 32);
      for (std::size_t i = 4; i-- > 0;) x = list[i]->as<torch::nn::Linear>()->forward(x);
      x.sum().backward();
    };
    run();
    for (const auto& bucket : ddp.record().buckets) EXPECT_EQ(bucket.hooks_before, 4);
    run();
    EXPECT_EQ(ddp.record().buckets.front().hooks_before, 1) << "the order of arrival is followed";
  });
}

}  // namespace
}  // namespace lockstep
