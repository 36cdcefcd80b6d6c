#include "lockstep/train/metrics.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/collectives/test_groups_internal.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

class MetricsOnRanks : public ::testing::TestWithParam<int> {
 protected:
  void with_groups(const std::function<void(ProcessGroup&)>& body) {
    with_sound_groups(GetParam(), body);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, MetricsOnRanks, ::testing::Range(1, 6));

TEST_P(MetricsOnRanks, AreReducedByTrueCounts) {
  with_groups([](ProcessGroup& group) {
    // Rank r has r samples of value r: integers, so the sum is exact in any order.
    const int rank = group.rank();
    Mean mean;
    Accuracy accuracy;
    Maximum largest;
    Minimum smallest;
    for (int i = 0; i < rank; ++i) mean.add(rank);
    accuracy.correct = rank;
    accuracy.count = 2.0 * rank + 1;
    largest.add(rank);
    smallest.add(rank - 3);
    reduce(group, mean, accuracy, largest, smallest);

    Mean expected;
    double correct = 0;
    double count = 0;
    for (int other = 0; other < group.size(); ++other) {
      expected.add(other, other);
      correct += other;
      count += 2.0 * other + 1;
    }
    EXPECT_EQ(mean, expected);
    EXPECT_EQ(mean.try_value().has_value(), group.size() > 1) << "rank 0 has no samples";
    EXPECT_EQ(accuracy.value(), correct / count);
    EXPECT_EQ(largest.value(), group.size() - 1);
    EXPECT_EQ(smallest.value(), -3);
  });
}

TEST_P(MetricsOnRanks, NameARankThatReducesOtherMetrics) {
  if (GetParam() == 1) return;
  with_groups([](ProcessGroup& group) {
    Mean mean;
    Maximum largest;
    try {
      if (group.rank() == 1) {
        reduce(group, mean, largest);
      } else {
        reduce(group, mean);
      }
      ADD_FAILURE() << "nothing was thrown";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), group.rank() == 1 ? 0 : 1) << error.what();
    }
  });
}

TEST(Mean, IsWeighted) {
  Mean mean;
  EXPECT_FALSE(mean.try_value());
  EXPECT_THROW((void)mean.value(), UsageError);
  mean.add(torch::tensor(2.0), 3);
  mean.add(10);
  EXPECT_EQ(mean.value(), 4);
}

// The loop of docs/data.md. The last global batch has one sample, so a rank's shard is empty, and
// the mean loss over no samples is NaN.
TEST_P(MetricsOnRanks, OfAnEvaluationWithAnEmptyShardAreThoseOfOneProcess) {
  const auto input = torch::arange(15, torch::kFloat).view({5, 3}).cos();
  const auto target = torch::tensor({0, 2, 1, 1, 0});
  const TensorDataset data({{"input", input}, {"target", target}});
  with_groups([&](ProcessGroup& group) {
    const BatchSizes sizes{.local = 2, .world = group.size()};
    Loader loader(data, evaluation_options(sizes, group.rank()));
    Mean loss;
    Accuracy accuracy;
    for (const auto& batch : loader.epoch()) {
      const auto logits = batch.input();
      loss.add(torch::cross_entropy_loss(logits, batch.target()),
               static_cast<double>(batch.count()));
      accuracy.add(logits, batch.target());
    }
    reduce(group, loss, accuracy);
    // Sums of float32 means, added in another order.
    EXPECT_NEAR(loss.value(), torch::cross_entropy_loss(input, target).item<double>(), 1e-6);
    EXPECT_EQ(loss.count, 5);
    EXPECT_EQ(accuracy.count, 5);
    EXPECT_EQ(accuracy.correct, input.argmax(1).eq(target).sum().item<double>());
  });
}

TEST(Accuracy, CountsTargetsAmongTheHighestLogits) {
  const auto logits = torch::tensor({{3., 1., 2.}, {1., 3., 2.}, {5., 5., 5.}, {1., 2., 3.}});
  const auto target = torch::tensor({0, 2, 0, 1});
  Accuracy first;
  first.add(logits, target);
  EXPECT_EQ(first, (Accuracy{2, 4}));
  const auto best = logits.argmax(1).eq(target).sum().item<double>();
  EXPECT_EQ(first.correct, best) << "differs from LibTorch's argmax";
  Accuracy second;
  second.add(logits, target, {.top = 2});
  EXPECT_EQ(second, (Accuracy{4, 4}));
  Accuracy some;
  some.add(logits, target, {.ignored_class = 0});
  EXPECT_EQ(some, (Accuracy{0, 2}));
  Accuracy equal_logits;
  equal_logits.add(torch::zeros({1, 3}), torch::tensor({2}));
  EXPECT_EQ(equal_logits.correct, 0) << "equal logits are not a correct prediction";
  Accuracy broken;
  broken.add(torch::full({1, 3}, std::nan("")), torch::tensor({0}));
  EXPECT_EQ(broken, (Accuracy{0, 1}));
  Accuracy sequences;
  sequences.add(logits.view({2, 2, 3}), target.view({2, 2}));
  EXPECT_EQ(sequences, first);
  EXPECT_THROW(first.add(logits, target.view({2, 2})), UsageError);
}

TEST(Extremes, KeepNaN) {
  Maximum largest;
  for (const double value : {1.0, std::nan(""), 2.0}) largest.add(value);
  EXPECT_TRUE(std::isnan(largest.value()));
  Minimum smallest;
  for (const double value : {1.0, -4.0, 2.0}) smallest.add(value);
  EXPECT_EQ(smallest.value(), -4);
}

}  // namespace
}  // namespace lockstep
