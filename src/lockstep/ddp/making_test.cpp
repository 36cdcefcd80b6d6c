// Construction and destruction of a Ddp: differences between ranks are named, a Ddp that never
// reduced anything is reported, and parameters that were added later are found.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/replica_check.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

TEST(MakingADdp, NamesTheOptionThatDiffersWithBothValues) {
  struct Case {
    DdpOptions options;
    std::string text;
  };
  const std::vector<Case> cases{
      {{.bucket_bytes = 64}, "DdpOptions::bucket_bytes is 26214400 on rank 0 and 64 on rank 1"},
      {{.bucket_bytes = kAutotune}, "bucket_bytes is 26214400 on rank 0 and kAutotune on rank 1"},
      {{.normalize = Normalize::by_count}, "normalize is by_rank on rank 0 and by_count on rank 1"},
      {{.accumulate = 2}, "accumulate is 1 on rank 0 and 2 on rank 1"},
      {{.buffers = BufferSync::never}, "buffers is each_step on rank 0 and never on rank 1"},
      {{.gradient_buffers = 2}, "gradient_buffers is 1 on rank 0 and 2 on rank 1"}};
  for (const auto& [other, text] : cases) {
    with_ddp_groups(3, [&](ProcessGroup& group) {
      const auto net = weights({"a"});
      const auto options = group.rank() == 1 ? other : DdpOptions{};
      EXPECT_TRUE(holds(message_of([&] { const Ddp ddp(*net, group, options); }), text));
      const Ddp same(*net, group);  // the group is still usable
    });
  }
}

TEST(MakingADdp, OnOneRankOnlyIsNamed) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    const auto net = weights({"a"});
    const auto text = message_of([&] { const Ddp ddp(*net, group); });
    EXPECT_TRUE(holds(text, "rank 1 has left"));
    EXPECT_TRUE(holds(text, "Every rank makes the Ddp"));
  });
}

TEST(MakingADdp, NamesAParameterOfAnUnsupportedDtype) {
  with_ddp_groups(1, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    net->register_parameter("small", torch::ones({8}, test_device()).to(torch::kFloat8_e4m3fn),
                            false);
    const auto text = message_of([&] { const Ddp ddp(*net, group); });
    EXPECT_TRUE(holds(text, "parameter small is Float8_e4m3fn"));
  });
}

TEST(MakingADdp, DestroyedBeforeTheFirstGradientIsReportedOnceByThatGradient) {
  const auto made_in_a_helper = [](ProcessGroup& group) {
    const auto net = weights({"a", "b"});
    { const Ddp ddp(*net, group); }
    for (int step = 0; step < 3; ++step) {
      (loss_with((*net)["a"], group.rank() + 1) + loss_with((*net)["b"], 1)).backward();
    }
  };
  const auto text = log_of(2, made_in_a_helper);
  const auto first = text.find("has reduced no gradients");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_TRUE(holds(text, "Is it a temporary?"));
  EXPECT_EQ(text.find("has reduced no gradients", first + 1), std::string::npos) << text;
  EXPECT_EQ(log_of(1, made_in_a_helper), "") << "there is no other rank to average with";
}

TEST(MakingADdp, ThatIsUsedOrNotNeededIsNotReported) {
  const auto used = [](ProcessGroup& group) {
    const auto net = weights({"a"});
    { const Ddp ddp(*net, group); }
    const Ddp second(*net, group);
    loss_with((*net)["a"], group.rank() + 1).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), mean_rank(2)));
  };
  EXPECT_EQ(log_of(2, used), "");
  const auto nothing_left_to_train = [](ProcessGroup& group) {
    const auto net = weights({"a"});
    const Ddp ddp(*net, group);
  };
  EXPECT_EQ(log_of(2, nothing_left_to_train), "");
}

// All parameters known to the Ddp get gradients, so only a walk through the module finds the new
// one.
TEST(ParametersAddedAfterwards, AreNamedByTheFirstReduction) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    const Ddp ddp(*net, group);
    net->register_parameter("frozen", torch::zeros({3}, test_device()), /*requires_grad=*/false);
    loss_with((*net)["a"], 1).backward();
    net->zero_grad();
    EXPECT_TRUE(is_filled((*net)["a"], 0));
  });
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    const Ddp ddp(*net, group);
    net->register_parameter("late", torch::zeros({3}, test_device()));
    const auto text =
        message_of([&] { (loss_with((*net)["a"], 1) + loss_with((*net)["late"], 1)).backward(); });
    EXPECT_TRUE(holds(text, "added to the module after"));
    EXPECT_TRUE(holds(text, "late"));
  });
}

TEST(ParametersAddedAfterwards, AreNamedWithinARoundOfTheReplicaCheck) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    const Ddp ddp(*net, group);
    loss_with((*net)["a"], 1).backward();
    net->register_parameter("late", torch::zeros({3}, test_device()));
    std::string text;
    for (int step = 0; step < ReplicaCheck::kWindows && text.empty(); ++step) {
      net->zero_grad();
      text = message_of([&] { loss_with((*net)["a"], 1).backward(); });
    }
    EXPECT_TRUE(holds(text, "late"));
  });
}

TEST(AModuleDestroyedFirst, IsNotAccessed) {
  const auto text = log_of(2, [](ProcessGroup& group) {
    auto net = weights({"a"});
    net->register_buffer("running", torch::zeros({2}, test_device()));
    auto ddp = std::make_unique<Ddp>(*net, group);
    loss_with((*net)["a"], 1).backward();
    net->zero_grad();
    const auto weight = (*net)["a"];
    const auto loss = loss_with(weight, group.rank() + 1);
    net.reset();
    loss.backward();
    EXPECT_TRUE(is_filled(weight.grad(), mean_rank(2))) << "the graph outlives the module";
    ddp.reset();
  });
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace lockstep
