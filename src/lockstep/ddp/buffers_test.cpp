// Buffers with running statistics: which rank's values all ranks have after a step, and that a
// graph that saved them can still run backward.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    register_module("linear", linear);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) { return norm->forward(linear->forward(x)); }
  torch::nn::Linear linear{6, 4};
  torch::nn::BatchNorm1d norm{4};
};
TORCH_MODULE(Normed);

Normed make_normed() {
  Normed net;
  fill(*net, 1);
  return net;
}

class Buffers : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Buffers, ::testing::Values(1, 2, 3));

std::vector<at::Tensor> buffers_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const auto& buffer : module.buffers()) all.push_back(buffer.clone());
  return all;
}

// The buffers of rank `rank` after `steps` forwards in a single process.
std::vector<at::Tensor> alone(int rank, int steps) {
  auto net = make_normed();
  for (int step = 0; step < steps; ++step) net->forward(batch_of(rank, step));
  return buffers_of(*net);
}

TEST_P(Buffers, AreEqualAfterEachBackward) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    auto net = make_normed();
    if (group.rank() != 0) net->norm->running_mean.fill_(group.rank());
    Ddp ddp(*net, group);
    EXPECT_TRUE(are_equal(buffers_of(*net), alone(0, 0))) << "from the start";
    for (int step = 0; step < 3; ++step) {
      net->forward(batch_of(group.rank(), step)).square().mean().backward();
      EXPECT_TRUE(are_equal(buffers_of(*net), alone(0, step + 1)));
      net->zero_grad();
    }
  });
}

TEST_P(Buffers, AreThoseOfTheLowestRankWithABatch) {
  with_ddp_groups(GetParam() + 1, [](ProcessGroup& group) {
    auto net = make_normed();
    Ddp ddp(*net, group);
    if (group.rank() == 0) {
      ddp.sit_out();
    } else {
      net->forward(batch_of(group.rank(), 0)).square().mean().backward();
    }
    EXPECT_TRUE(are_equal(buffers_of(*net), alone(1, 1)));
    ddp.sit_out();
    EXPECT_TRUE(are_equal(buffers_of(*net), alone(1, 1))) << "equal on all ranks";
  });
}

TEST_P(Buffers, AreLeftAloneUnderNoSync) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    auto net = make_normed();
    Ddp ddp(*net, group);
    {
      const auto pause = ddp.no_sync();
      net->forward(batch_of(group.rank(), 0)).square().mean().backward();
    }
    EXPECT_TRUE(are_equal(buffers_of(*net), alone(group.rank(), 1)));
    net->forward(batch_of(group.rank(), 1)).square().mean().backward();
    EXPECT_TRUE(are_equal(buffers_of(*net), alone(0, 2)));
  });
}

TEST_P(Buffers, OnceMeansAtTheStartOnly) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    auto net = make_normed();
    if (group.rank() != 0) net->norm->running_mean.fill_(group.rank());
    Ddp ddp(*net, group, {.buffers = BufferSync::once});
    EXPECT_TRUE(are_equal(buffers_of(*net), alone(0, 0)));
    net->forward(batch_of(group.rank(), 0)).square().mean().backward();
    EXPECT_TRUE(are_equal(buffers_of(*net), alone(group.rank(), 1)));
    const int root = group.size() - 1;
    ddp.sync_buffers(root);
    EXPECT_TRUE(are_equal(buffers_of(*net), alone(root, 1))) << "after sync_buffers()";
  });
}

TEST_P(Buffers, NeverMeansNotAtTheStartEither) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    auto net = make_normed();
    net->norm->running_mean.fill_(group.rank() + 1);
    Ddp ddp(*net, group, {.buffers = BufferSync::never});
    EXPECT_TRUE(is_filled(net->norm->running_mean, group.rank() + 1));
    net->forward(batch_of(group.rank(), 0)).square().mean().backward();
    ddp.sync_buffers();
    EXPECT_TRUE(group.rank() == 0 || !is_filled(net->norm->running_mean, group.rank() + 1));
  });
}

// Two graphs have saved the statistics; the backward of the first one writes to them.
TEST_P(Buffers, AreWrittenWithoutBreakingGraphsThatSavedThem) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    auto net = make_normed();
    Ddp ddp(*net, group);
    const auto first = net->forward(batch_of(group.rank(), 0)).square().mean();
    net->eval();
    const auto second = net->forward(batch_of(group.rank(), 1)).square().mean();
    const auto version = net->norm->running_mean._version();
    first.backward();
    EXPECT_EQ(net->norm->running_mean._version(), version);
    EXPECT_NO_THROW(second.backward());
    EXPECT_TRUE(ddp.should_step());
  });
}

TEST_P(Buffers, ReplacedOnesAreCopiedToo) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    auto net = make_normed();
    Ddp ddp(*net, group);
    net->norm->running_mean.set_data(torch::full({4}, group.rank() + 5.0, test_device()));
    torch::nn::BatchNorm1d fresh(torch::nn::BatchNorm1dOptions(4).affine(false));
    fresh->to(test_device());
    fresh->running_var.fill_(group.rank() + 7);
    net->register_module("fresh", fresh);
    net->linear->forward(batch_of(group.rank(), 0)).sum().backward();
    EXPECT_TRUE(is_filled(net->norm->running_mean, 5));
    EXPECT_TRUE(is_filled(fresh->running_var, 7));
  });
}

}  // namespace
}  // namespace lockstep
