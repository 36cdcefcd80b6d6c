// Replicas that differ are found within kWindows steps, and the rank is named.
#include "lockstep/ddp/replica_check.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

// Long enough for kWindows windows.
constexpr std::int64_t kLength = 150'000;

void step(const WeightsImpl& net, torch::optim::Optimizer& optimizer) {
  (loss_with(net["a"], 1) + loss_with(net["b"], 1) + loss_with(net["c"], 1)).backward();
  optimizer.step();
  optimizer.zero_grad();
  if (test_device().is_cuda()) torch::cuda::synchronize();  // digests are there in time
}

// The windows that a digest may be late.
std::int64_t lag() { return test_device().is_cuda() ? std::int64_t{ReplicaCheck::kLag} : 0; }

// Steps until the ranks get the error. The digest of a window travels with the next step.
void expect_found(const WeightsImpl& net, torch::optim::Optimizer& optimizer,
                  const std::string& name, int rank) {
  for (int i = 0; i <= ReplicaCheck::kWindows + lag(); ++i) {
    try {
      step(net, optimizer);
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), rank);
      EXPECT_TRUE(holds(error.what(), "parameter " + name + " "));
      EXPECT_TRUE(holds(error.what(), "rank " + std::to_string(rank)));
      EXPECT_TRUE(holds(error.what(), "checkpoint"));
      return;
    }
  }
  ADD_FAILURE() << "not found in " << ReplicaCheck::kWindows << " steps";
}

TEST(ReplicaCheck, FindsTheFirstRankWhoseDigestIsNotThatOfRankZero) {
  constexpr auto kHigh = std::uint64_t{1} << 63;  // all 64 bits are compared
  with_ddp_groups(3, [](ProcessGroup& group) {
    EXPECT_EQ(find_differing_rank(group, 7, "equal"), std::nullopt);
    EXPECT_EQ(find_differing_rank(group, group.rank() == 2 ? kHigh : 0, "last"), 2);
    EXPECT_EQ(find_differing_rank(group, group.rank() == 0 ? kHigh : 0, "first"), 1);
  });
}

TEST(ReplicaCheck, NamesTheRankWhoseParameterWasChanged) {
  for (const std::int64_t element : {std::int64_t{0}, kLength / 2, kLength - 1}) {
    with_ddp_groups(3, [element](ProcessGroup& group) {
      const auto net = weights({"a", "b", "c"}, kLength);
      Ddp ddp(*net, group);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      step(*net, optimizer);
      if (group.rank() == 2) {
        const torch::NoGradGuard off;
        (*net)["b"][element] += 1e-3;
      }
      expect_found(*net, optimizer, "b", 2);
    });
  }
}

TEST(ReplicaCheck, NamesTheRankWhoseAveragedGradientWasChanged) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"}, kLength);
    Ddp ddp(*net, group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    (loss_with((*net)["a"], 1) + loss_with((*net)["c"], 1)).backward();
    if (group.rank() == 1) (*net)["c"].mutable_grad()[kLength / 3] = 5;
    optimizer.step();
    optimizer.zero_grad();
    expect_found(*net, optimizer, "c", 1);
  });
}

TEST(ReplicaCheck, NamesFrozenParametersToo) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a", "b", "c"}, kLength);
    net->register_parameter("frozen", torch::zeros({9}, test_device()), /*requires_grad=*/false);
    Ddp ddp(*net, group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    if (group.rank() == 1) (*net)["frozen"].fill_(1);
    expect_found(*net, optimizer, "frozen", 1);
  });
}

// The program writes to averaged gradients before the optimizer uses them.
TEST(ReplicaCheck, DistinguishesGradientsFromParameters) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto net = weights({"a"});
    FlatParameters flat(*net, group);
    ReplicaCheck check;
    const auto digests_equal = [&] {
      for (int i = 0; i <= lag(); ++i) {
        check.look(flat, group.size());
        if (test_device().is_cuda()) torch::cuda::synchronize();
      }
      auto work = group.barrier({.flags = CallFlags{.equal = check.digest()}});
      work.wait();
      return work.flags().all_equal;
    };
    EXPECT_TRUE(digests_equal());
    flat.gradients(0)[2] = group.rank();
    EXPECT_FALSE(digests_equal());
    const auto text = message_of([&] { check.report(flat, group); });
    EXPECT_TRUE(holds(text, "averaged gradients"));
    EXPECT_TRUE(holds(text, "rank 1"));
  });
}

TEST(ReplicaCheck, IsQuietWhileReplicasAreEqual) {
  with_ddp_groups(3, [](ProcessGroup& group) {
    TestNet net;
    fill(*net, group.rank());
    Ddp ddp(*net, group, {.bucket_bytes = 4096});
    torch::optim::AdamW optimizer(net->parameters(), 1e-2);
    for (int i = 0; i < 150; ++i) {
      net->second->weight.requires_grad_(i % 5 != 2);
      if ((i + group.rank()) % 4 == 0) {
        ddp.sit_out();
      } else {
        net->forward(batch_of(group.rank(), i), (i + group.rank()) % 3 == 0)
            .square()
            .mean()
            .backward();
      }
      if (i % 7 == 3) continue;  // gradients stay for the next step
      if (ddp.should_step()) optimizer.step();
      optimizer.zero_grad(i % 2 == 0);
    }
  });
}

}  // namespace
}  // namespace lockstep
