// One backward of the unchanged benchmark transformer with a batch of 2 × 64: buckets are reduced
// while backward still computes, and results are bit-identical for any division into buckets.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"
#include "models/benchmark_transformer.h"
#include "models/made_up_numbers.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;

void run_backward(models::BenchmarkTransformer& net, int rank) {
  const auto tokens = models::made_up_tokens(2, 65, 50257, rank);
  const auto logits = net->forward(tokens.slice(1, 0, 64));
  torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens.slice(1, 1, 65).flatten())
      .backward();
}

std::vector<at::Tensor> take_gradients(models::BenchmarkTransformer& net) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : net->parameters()) gradients.push_back(parameter.grad());
  net->zero_grad();
  return gradients;
}

void expect_overlap(const StepRecord& record, std::size_t num_parameters) {
  const auto& buckets = record.buckets;
  ASSERT_GT(buckets.size(), 1U);
  ASSERT_EQ(record.hooks, static_cast<int>(num_parameters));
  EXPECT_LT(2 * buckets.front().hooks_before, record.hooks) << "before half the hooks have fired";
  for (std::size_t i = 0; i + 1 < buckets.size(); ++i) {
    EXPECT_LT(buckets[i].hooks_before, record.hooks) << "bucket " << i << " of " << buckets.size();
    EXPECT_LE(buckets[i].ready, buckets[i].launched);
    EXPECT_LE(buckets[i].launched, buckets[i + 1].launched);
  }
}

TEST(TransformerOverlap, ReducesBucketsDuringBackwardAndIsBitIdenticalForAnyBuckets) {
  // Without Ddp: the mean of two is one addition and a division by 2, whose order is fixed.
  std::vector<models::BenchmarkTransformer> nets(kRanks);
  std::vector<std::vector<at::Tensor>> own;
  for (int rank = 0; rank < kRanks; ++rank) {
    models::fill(*nets[static_cast<std::size_t>(rank)]);
    run_backward(nets[static_cast<std::size_t>(rank)], rank);
    own.push_back(take_gradients(nets[static_cast<std::size_t>(rank)]));
  }
  std::vector<at::Tensor> expected;
  for (std::size_t i = 0; i < own[0].size(); ++i) expected.push_back((own[0][i] + own[1][i]) / 2);
  own.clear();

  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(kRanks, [&](testing::Rank& self) {
    const ProcessGroup group(point.join(self.rank(), self.size()));
    auto& net = nets[static_cast<std::size_t>(self.rank())];
    for (const std::size_t bucket_bytes :
         {64UL << 10, 1UL << 20, kDefaultBucketBytes, kOneBucket}) {
      Ddp ddp(*net, group, {.bucket_bytes = bucket_bytes});
      // The second backward uses buckets in the order in which gradients arrived in the first.
      const int num_backwards = bucket_bytes == kDefaultBucketBytes ? 2 : 1;
      for (int backward = 0; backward < num_backwards; ++backward) {
        net->zero_grad();
        run_backward(net, self.rank());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(net->parameters()[i].grad().equal(expected[i]))
              << net->named_parameters().keys()[i] << " with buckets of " << bucket_bytes;
        }
      }
      if (bucket_bytes == kOneBucket) {
        EXPECT_EQ(ddp.record().buckets.size(), 1U);
      } else {
        expect_overlap(ddp.record(), expected.size());
      }
      net->zero_grad();
    }
  });
}

}  // namespace
}  // namespace lockstep
