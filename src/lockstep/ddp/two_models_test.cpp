// Several Ddps in one graph: each one's calls are ordered independently of the other's.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

struct Case {
  int size = 1;
  std::size_t bucket_bytes = 1;
};
class TwoModels : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(RanksAndBuckets, TwoModels,
                         ::testing::Values(Case{1, 1}, Case{2, 1}, Case{2, kDefaultBucketBytes},
                                           Case{3, 1}));

TEST_P(TwoModels, WithAParameterUnusedOnOneRank) {
  const int size = GetParam().size;
  with_ddp_groups(size, [&](ProcessGroup& group) {
    const auto g = weights({"a", "b"});
    const auto d = weights({"c", "spare"});
    const Ddp g_ddp(*g, group, {.bucket_bytes = GetParam().bucket_bytes});
    const Ddp d_ddp(*d, group, {.bucket_bytes = GetParam().bucket_bytes});
    for (int step = 0; step < 6; ++step) {
      const bool spares = group.rank() == 1 && step % 2 == 1;
      auto loss = loss_with((*g)["a"], group.rank() + 1) + loss_with((*g)["b"], 3);
      loss = loss + loss_with((*d)["c"], group.rank() + 1);
      if (!spares) loss = loss + loss_with((*d)["spare"], 6);
      loss.backward();
      const int with_spare = size > 1 && step % 2 == 1 ? size - 1 : size;
      EXPECT_TRUE(is_filled((*g)["a"].grad(), mean_rank(size)));
      EXPECT_TRUE(is_filled((*g)["b"].grad(), 3));
      EXPECT_TRUE(is_filled((*d)["c"].grad(), mean_rank(size)));
      EXPECT_TRUE(is_filled((*d)["spare"].grad(), 6.0 * with_spare / size));
      g->zero_grad();
      d->zero_grad();
    }
  });
}

// Rank 0 reaches one model first, the other ranks the other one. Buffers are copied after each
// reduction, so that each Ddp has several calls to wait for.
TEST_P(TwoModels, ThatRanksReachInDifferentOrders) {
  const int size = GetParam().size;
  with_ddp_groups(size, [&](ProcessGroup& group) {
    const auto g = weights({"a", "b"});
    const auto d = weights({"a", "b"});
    for (const auto& net : {g, d})
      net->register_buffer("running", torch::full({2}, group.rank(), test_device()));
    const Ddp g_ddp(*g, group, {.bucket_bytes = GetParam().bucket_bytes});
    const Ddp d_ddp(*d, group, {.bucket_bytes = GetParam().bucket_bytes});
    const auto loss_of = [&](bool of_g) {
      const auto& net = of_g ? *g : *d;
      const double scale = of_g ? 1 : 10;  // gradients of the other model would be detected
      return loss_with(net["a"], scale * (group.rank() + 1)) + loss_with(net["b"], 2 * scale);
    };
    for (int step = 0; step < 4; ++step) {
      const bool g_first = (group.rank() + step) % 2 == 0;
      const auto later = loss_of(!g_first);
      const auto first = loss_of(g_first);  // the operation computed last runs backward first
      (first + later).backward();
      for (const auto& net : {g, d}) {
        const double scale = net == g ? 1 : 10;
        EXPECT_TRUE(is_filled((*net)["a"].grad(), scale * mean_rank(size)));
        EXPECT_TRUE(is_filled((*net)["b"].grad(), 2 * scale));
        net->zero_grad();
      }
    }
  });
}

// The pattern of docs/ddp.md: the generator's backward leaves gradients in the discriminator that
// no optimizer step uses.
TEST(AGan, ThatPausesTheDiscriminatorEndsWithoutAWarning) {
  const auto text = log_of(2, [](ProcessGroup& group) {
    const auto g = weights({"g"});
    const auto d = weights({"d"});
    const Ddp g_ddp(*g, group);
    Ddp d_ddp(*d, group);
    torch::optim::SGD g_optimizer(g->parameters(), 0.5);
    torch::optim::SGD d_optimizer(d->parameters(), 0.5);
    for (int step = 0; step < 3; ++step) {
      d_optimizer.zero_grad();
      loss_with((*d)["d"], group.rank() + 1).backward();
      EXPECT_TRUE(is_filled((*d)["d"].grad(), mean_rank(2)));
      d_optimizer.step();
      g_optimizer.zero_grad();
      {
        const auto pause = d_ddp.no_sync();
        ((*g)["g"] * (group.rank() + 1) + (*d)["d"]).sum().backward();
      }
      EXPECT_TRUE(is_filled((*g)["g"].grad(), mean_rank(2)));
      g_optimizer.step();
    }
  });
  EXPECT_EQ(text, "");
}

TEST(AStepWithGradientsThatWereNotAveraged, IsReportedAtTheEnd) {
  const auto text = log_of(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    Ddp ddp(*net, group);
    loss_with((*net)["a"], 1).backward();
    net->zero_grad();
    torch::optim::SGD optimizer(net->parameters(), 0.5);
    const auto pause = ddp.no_sync();
    loss_with((*net)["a"], group.rank() + 1).backward();
    optimizer.step();
  });
  EXPECT_TRUE(holds(text, "that were never averaged"));
}

}  // namespace
}  // namespace lockstep
