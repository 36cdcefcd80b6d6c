// What the mean is taken over: ranks, micro-batches or samples; ranks that sit out; should_step().
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

class Counts : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Counts, ::testing::Values(1, 2, 3));

constexpr int kSamples = 23;

// Integers, so that the sum is exact for any split of the batch.
at::Tensor samples_of(int begin, int end) {
  return (torch::arange(begin * 6, end * 6).reshape({end - begin, 6}) % 7 - 3)
      .to(test_device(), torch::kFloat);
}

void fill_whole(torch::nn::Module& module) {
  const torch::NoGradGuard off;
  for (auto& parameter : module.parameters()) {
    parameter.copy_((torch::arange(parameter.numel()) % 3 - 1).reshape(parameter.sizes()));
  }
}

// The mean gradient of all samples in one process.
std::vector<at::Tensor> of_one_batch() {
  TestNet net;
  fill_whole(*net);
  net->forward(samples_of(0, kSamples)).sum().backward();
  auto gradients = gradients_of(*net);
  // By a tensor: on a GPU a division by a number is a multiplication by its reciprocal.
  for (auto& gradient : gradients) gradient = gradient / torch::full_like(gradient, kSamples);
  return gradients;
}

// The first sample of rank r; the last rank has the remainder.
int shard_begin(int rank, int size) { return rank == size ? kSamples : rank * rank * 3; }

// The backward of shard `shard` of `size`, with count().
void run_shard(Ddp& ddp, TestNet& net, int shard, int size) {
  const int begin = shard_begin(shard, size);
  const int end = shard_begin(shard + 1, size);
  ddp.count(end - begin);
  net->forward(samples_of(begin, end)).sum().backward();
}

// Gradients are the mean over all samples and should_step() is true. Then resets gradients.
void expect_step(const Ddp& ddp, TestNet& net, const std::vector<at::Tensor>& expected) {
  EXPECT_TRUE(are_equal(gradients_of(*net), expected));
  EXPECT_TRUE(ddp.should_step());
  net->zero_grad();
}

TEST_P(Counts, UnevenShardsGiveTheMeanOverAllSamples) {
  const auto expected = of_one_batch();
  with_ddp_groups(GetParam(), [&](ProcessGroup& group) {
    TestNet net;
    fill_whole(*net);
    Ddp ddp(*net, group, {.bucket_bytes = 4096, .normalize = Normalize::by_count});
    for (int step = 0; step < 2; ++step) {
      run_shard(ddp, net, group.rank(), group.size());
      expect_step(ddp, net, expected);
    }
  });
}

TEST_P(Counts, AnEmptyRankSitsOutAndChangesNothing) {
  const auto expected = of_one_batch();
  with_ddp_groups(GetParam() + 1, [&](ProcessGroup& group) {
    TestNet net;
    fill_whole(*net);
    Ddp ddp(*net, group, {.bucket_bytes = 4096, .normalize = Normalize::by_count});
    for (int step = 0; step < group.size(); ++step) {
      // Each rank sits out once, also the first.
      const int shard = (group.rank() + group.size() - step) % group.size();
      if (shard == 0) {
        ddp.sit_out();
      } else {
        run_shard(ddp, net, shard - 1, group.size() - 1);
      }
      expect_step(ddp, net, expected);
    }
  });
}

TEST_P(Counts, AStepWithoutAnyBatchDoesNotChangeGradients) {
  for (const auto normalize : {Normalize::by_rank, Normalize::by_count}) {
    with_ddp_groups(GetParam(), [normalize](ProcessGroup& group) {
      const auto net = weights({"a", "b"});
      Ddp ddp(*net, group, {.normalize = normalize});
      ddp.sit_out();
      EXPECT_FALSE(ddp.should_step());
      EXPECT_FALSE((*net)["a"].grad().defined());
      if (normalize == Normalize::by_count) ddp.count(1);
      loss_with((*net)["a"], 7).backward();
      EXPECT_TRUE(ddp.should_step());
      ddp.sit_out();
      EXPECT_FALSE(ddp.should_step());
      EXPECT_TRUE(is_filled((*net)["a"].grad(), 7));
      EXPECT_FALSE((*net)["b"].grad().defined());
    });
  }
}

TEST_P(Counts, ByRankTheMeanIsOverRanksWithABatch) {
  with_ddp_groups(GetParam() + 1, [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    const int size = group.size();
    for (int step = 0; step < 2; ++step) {
      if (group.rank() == size - 1) {
        ddp.sit_out();
      } else {
        loss_with((*net)["a"], group.rank() + 1).backward();
      }
      EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(size - 1)));
      EXPECT_FALSE((*net)["b"].grad().defined());
      net->zero_grad();
    }
  });
}

// A stale gradient has the weight of the ranks that take part; a rank that sits out with the same
// stale gradient does not reduce it.
TEST_P(Counts, AStaleGradientIsNotReducedByARankThatSitsOut) {
  with_ddp_groups(GetParam() + 1, [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    (loss_with((*net)["a"], 4) + loss_with((*net)["b"], 3)).backward();
    if (group.rank() == 0) {
      ddp.sit_out();
    } else {
      loss_with((*net)["a"], 2).backward();
    }
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 6));
    EXPECT_TRUE(is_filled((*net)["b"].grad(), 3));
  });
}

TEST_P(Counts, ABatchOfNoSamplesAddsItsGradientAndNoWeight) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a"});
    Ddp ddp(*net, group, {.normalize = Normalize::by_count});
    ddp.count(group.rank() == 0 ? 4 : 0);
    loss_with((*net)["a"], group.rank() == 0 ? 8 : 4).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 2 + (group.size() - 1)));
    EXPECT_TRUE(ddp.should_step());
    net->zero_grad();
    ddp.count(0);
    loss_with((*net)["a"], 0).backward();
    EXPECT_FALSE(ddp.should_step()) << "all batches are masked: no samples";
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 0));
  });
}

TEST_P(Counts, AccumulationIsOneLargeBatch) {
  const auto expected = of_one_batch();
  with_ddp_groups(GetParam(), [&](ProcessGroup& group) {
    TestNet net;
    fill_whole(*net);
    Ddp ddp(*net, group, {.bucket_bytes = 4096, .normalize = Normalize::by_count});
    const int begin = shard_begin(group.rank(), group.size());
    const int end = shard_begin(group.rank() + 1, group.size());
    const auto micro_step = [&](int from, int to) {
      ddp.count(to - from);
      net->forward(samples_of(from, to)).sum().backward();
    };
    for (int step = 0; step < 2; ++step) {
      {
        const auto pause = ddp.no_sync();
        micro_step(begin, begin + 1);
        EXPECT_FALSE(ddp.should_step()) << "gradients are not averaged";
        micro_step(begin + 1, begin + 2);
      }
      micro_step(begin + 2, end);
      EXPECT_TRUE(ddp.should_step());
      EXPECT_TRUE(are_equal(gradients_of(*net), expected));
      net->zero_grad();
    }
  });
}

TEST_P(Counts, AccumulationAsAnOptionAveragesOverMicroBatchesToo) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.accumulate = 4});
    for (int step = 0; step < 3; ++step) {
      for (int micro = 0; micro < 4; ++micro) {
        auto loss = loss_with((*net)["a"], (group.rank() + 1) * micro);
        if (micro == 1) loss = loss + loss_with((*net)["b"], 4 * (group.rank() + 1));
        loss.backward();
        EXPECT_EQ(ddp.should_step(), micro == 3);
      }
      EXPECT_TRUE(is_filled((*net)["a"].grad(), 1.5 * mean_rank(group.size())));
      EXPECT_TRUE(is_filled((*net)["b"].grad(), mean_rank(group.size())));
      net->zero_grad();
    }
  });
}

TEST_P(Counts, MicroBatchesWithoutABatchHaveNoWeight) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a"});
    Ddp ddp(*net, group, {.accumulate = 3});
    for (int step = 0; step < 2; ++step) {
      // Rank 0 has 3 batches, rank 1 only the first, other ranks none.
      for (int micro = 0; micro < 3; ++micro) {
        if (group.rank() == 0 || (group.rank() == 1 && micro == 0)) {
          loss_with((*net)["a"], 12).backward();
        } else {
          ddp.sit_out();
        }
      }
      EXPECT_TRUE(is_filled((*net)["a"].grad(), 12));
      EXPECT_TRUE(ddp.should_step());
      net->zero_grad();
    }
  });
}

TEST_P(Counts, StartReducesWhileOtherWorkRuns) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    for (int step = 0; step < 2; ++step) {
      {
        const auto pause = ddp.no_sync();
        loss_with((*net)["a"], group.rank() + 1).backward();
      }
      EXPECT_TRUE(is_filled((*net)["a"].grad(), group.rank() + 1));
      auto sync = ddp.start();
      sync.wait();
      sync.wait();
      EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
      EXPECT_FALSE((*net)["b"].grad().defined());
      EXPECT_TRUE(ddp.should_step());
      net->zero_grad();
    }
  });
}

TEST_P(Counts, AssignedGradientsAreAveragedByStart) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    Ddp ddp(*net, group);
    const auto gradients =
        torch::autograd::grad({loss_with((*net)["a"], group.rank() + 1)}, {(*net)["a"]});
    (*net)["a"].mutable_grad() = gradients[0];
    ddp.start().wait();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(group.size())));
    EXPECT_TRUE(ddp.should_step());
  });
}

TEST_P(Counts, ANonFiniteGradientOfOneRankIsReportedOnAll) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    const auto step = [&](double of_b, bool with_b = true) {
      auto loss = loss_with((*net)["a"], 1) + loss_with((*net)["c"], 1);
      if (with_b) loss = loss + loss_with((*net)["b"], of_b);
      loss.backward();
    };
    const bool last = group.rank() == group.size() - 1;
    for (const bool set_to_none : {true, false}) {
      step(last ? std::numeric_limits<double>::infinity() : 1);
      EXPECT_TRUE(ddp.non_finite());
      const std::vector<std::string> named = {"b"};
      EXPECT_EQ(ddp.non_finite_parameters(), last ? named : std::vector<std::string>());
      net->zero_grad(set_to_none);
      step(1);
      EXPECT_FALSE(ddp.non_finite()) << set_to_none;
      EXPECT_TRUE(ddp.non_finite_parameters().empty());
      net->zero_grad();
      step(last ? std::numeric_limits<double>::quiet_NaN() : 1);
      EXPECT_TRUE(ddp.non_finite());
      net->zero_grad();
      step(1, /*with_b=*/false);
      EXPECT_FALSE(ddp.non_finite());
      EXPECT_TRUE(ddp.non_finite_parameters().empty()) << "of the last reduction only";
      net->zero_grad();
    }
  });
}

}  // namespace
}  // namespace lockstep
