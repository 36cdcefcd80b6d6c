// Non-finite gradients: every rank reports them, and the rank that has one logs it.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <string>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

class NonFinite : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, NonFinite, ::testing::Values(1, 2, 3));

TEST_P(NonFinite, OverflowingSumsOfFiniteGradientsAreFound) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    const Ddp ddp(*net, group);
    const auto step = [&](double gradient) {
      net->zero_grad();
      (loss_with((*net)["a"], 1) + loss_with((*net)["b"], gradient)).backward();
      return ddp.non_finite();
    };
    EXPECT_FALSE(step(1));
    EXPECT_EQ(step(3e38), group.size() > 1) << "one rank has no sum";
    EXPECT_EQ((*net)["b"].grad().isinf().all().item<bool>(), group.size() > 1);
    EXPECT_TRUE(ddp.non_finite_parameters().empty()) << "this rank's own are finite";
    EXPECT_FALSE(step(1)) << "reset by the next reduction";
  });
}

TEST_P(NonFinite, GradientsAreReportedOnceWithRankParameterAndBackward) {
  const int culprit = GetParam() - 1;
  const auto text = log_of(GetParam(), [&](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    const Ddp ddp(*net, group);
    for (int step = 1; step <= 5; ++step) {
      // In later steps every rank has one: the optimizer step has made the weights NaN.
      const bool bad = step > 3 || (step == 3 && group.rank() == culprit);
      const double gradient = bad ? std::numeric_limits<double>::quiet_NaN() : 1;
      (loss_with((*net)["a"], 1) + loss_with((*net)["b"], gradient)).backward();
      EXPECT_EQ(ddp.non_finite(), step >= 3);
      net->zero_grad();
    }
  });
  const auto line =
      "rank " + std::to_string(culprit) + " | warning: the gradient of b is non-finite";
  ASSERT_NE(text.find(line), std::string::npos) << text;
  EXPECT_TRUE(holds(text, "in backward 3"));
  EXPECT_EQ(text.find("warning", text.find("warning") + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
