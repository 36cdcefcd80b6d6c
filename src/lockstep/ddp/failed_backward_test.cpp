// A backward that ends by an exception: the model, the group and the next step are still good.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

struct Case {
  int size = 1;
  std::size_t bucket_bytes = 1;
};

class FailedBackward : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(RanksAndBuckets, FailedBackward,
                         ::testing::Values(Case{1, 1}, Case{2, 1}, Case{2, kDefaultBucketBytes},
                                           Case{3, 1}));

at::Tensor loss_of(const WeightsImpl& net, int rank) {
  return (net["a"] * 2 + net["b"]).sum() * (rank + 1) + loss_with(net["c"], rank + 1);
}

// The gradient of `b` comes in one graph with that of `c`; `a` would come later, but something
// throws first.
void fail(const WeightsImpl& net, int rank) {
  const auto doubled = net["a"] * 2;
  doubled.register_hook([](const at::Tensor&) { throw std::runtime_error("not this batch"); });
  const auto loss = (doubled + net["b"]).sum() * (rank + 1) + loss_with(net["c"], rank + 1);
  EXPECT_THROW(loss.backward(), std::runtime_error);
}

void expect_good(const WeightsImpl& net, int size) {
  EXPECT_TRUE(is_filled(net["a"].grad(), 2 * mean_rank(size)));
  EXPECT_TRUE(is_filled(net["b"].grad(), mean_rank(size)));
  EXPECT_TRUE(is_filled(net["c"].grad(), mean_rank(size)));
}

TEST_P(FailedBackward, TheNextStepIsRightOnceGradientsAreZeroed) {
  with_groups(GetParam().size, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group, {.bucket_bytes = GetParam().bucket_bytes});
    for (int step = 0; step < 3; ++step) {
      fail(*net, group.rank());
      net->zero_grad(/*set_to_none=*/step != 1);
      loss_of(*net, group.rank()).backward();
      expect_good(*net, group.size());
      net->zero_grad();
      loss_of(*net, group.rank()).backward();
      expect_good(*net, group.size());
      net->zero_grad();
    }
  });
}

TEST_P(FailedBackward, WithoutThatTheNextOneSaysWhatToDo) {
  with_groups(GetParam().size, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group, {.bucket_bytes = GetParam().bucket_bytes});
    fail(*net, group.rank());
    for (int again = 0; again < 2; ++again) {
      const auto text = message_of([&] { loss_of(*net, group.rank()).backward(); });
      EXPECT_TRUE(holds(text, "zero_grad()"));
      EXPECT_TRUE(holds(text, "exception"));
    }
    net->zero_grad();
    loss_of(*net, group.rank()).backward();
    expect_good(*net, group.size());
  });
}

// Samples of the failed step must not count: they would weigh the next one down.
TEST_P(FailedBackward, ItsSamplesAreForgotten) {
  with_groups(GetParam().size, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group,
            {.bucket_bytes = GetParam().bucket_bytes, .normalize = Normalize::by_count});
    {
      const auto pause = ddp.no_sync();
      ddp.count(50);
      loss_of(*net, group.rank()).backward();
    }
    ddp.count(70);
    fail(*net, group.rank());
    net->zero_grad();
    EXPECT_TRUE(holds(message_of([&] { loss_of(*net, group.rank()).backward(); }), "count("));
    net->zero_grad();
    ddp.count(1);
    loss_of(*net, group.rank()).backward();
    expect_good(*net, group.size());
  });
}

// Ranks that fail alone are found out by the next call, since it is another one.
TEST(FailedBackwardOfOneRank, IsFoundByTheOthers) {
  with_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"});
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    loss_of(*net, group.rank()).backward();
    net->zero_grad();
    try {
      if (group.rank() == 1) {
        fail(*net, 1);
        net->zero_grad();
      }
      loss_of(*net, group.rank()).backward();
      ADD_FAILURE() << "nobody noticed";
    } catch (const PeerError& error) {
      EXPECT_TRUE(holds(error.what(), "gradients"));
    }
  });
}

}  // namespace
}  // namespace lockstep
