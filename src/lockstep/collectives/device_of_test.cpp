#include "lockstep/collectives/device_of.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using Indices = std::vector<int>;

// Ranks of one host that all see the same GPUs.
std::vector<VisibleGpus> ranks_that_see(const std::vector<std::string>& gpus, int count,
                                        bool may_share = false) {
  std::vector<VisibleGpus> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.push_back({.local_rank = rank, .identities = gpus, .may_share = may_share});
  }
  return ranks;
}

std::string refusal_of(const std::vector<VisibleGpus>& ranks) {
  try {
    (void)assign_gpus(ranks);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

void expect_says(const std::string& text, const std::vector<std::string>& phrases) {
  for (const auto& phrase : phrases) EXPECT_NE(text.find(phrase), std::string::npos) << text;
}

TEST(DeviceOf, IsTheLocalRankAmongTheVisibleGpus) {
  EXPECT_EQ(assign_gpus(ranks_that_see({"A", "B", "C"}, 3)), (Indices{0, 1, 2}));
  EXPECT_EQ(assign_gpus(ranks_that_see({"A", "B", "C"}, 2)), (Indices{0, 1}));
}

TEST(DeviceOf, IsTheOnlyGpuThatTheLauncherShows) {
  auto ranks = ranks_that_see({"A"}, 3);
  ranks[1].identities = {"B"};
  ranks[2].identities = {"C"};
  EXPECT_EQ(assign_gpus(ranks), (Indices{0, 0, 0}));
}

TEST(DeviceOf, OfRanksOnTwoHostsMayHaveTheSameName) {
  auto ranks = ranks_that_see({"GPU 0"}, 2);
  ranks[1] = {.host = 1, .local_rank = 0, .identities = {"GPU 0"}};
  EXPECT_EQ(assign_gpus(ranks), (Indices{0, 0}));
}

TEST(DeviceOf, IsTheCpuIfNoRankSeesAGpu) {
  EXPECT_TRUE(assign_gpus(ranks_that_see({}, 2)).empty());
}

TEST(DeviceOf, RefusesAGpuThatTwoRanksWouldShareWithoutWantingIt) {
  expect_says(refusal_of(ranks_that_see({"A"}, 2)),
              {"ranks 0 and 1 would share", "(A)", "--allow-shared-gpu", "CUDA_VISIBLE_DEVICES"});
  expect_says(refusal_of(ranks_that_see({"A", "B"}, 3)),
              {"rank 2", "sees 2 GPUs", "--allow-shared-gpu"});
  // The order of CUDA_VISIBLE_DEVICES differs: local rank 1 of this list is A.
  auto ranks = ranks_that_see({"A", "B"}, 2);
  ranks[1].identities = {"B", "A"};
  expect_says(refusal_of(ranks), {"ranks 0 and 1 would share", "(A)"});
}

TEST(DeviceOf, DealsSharedGpusInTurn) {
  EXPECT_EQ(assign_gpus(ranks_that_see({"A"}, 3, true)), (Indices{0, 0, 0}));
  EXPECT_EQ(assign_gpus(ranks_that_see({"A", "B"}, 4, true)), (Indices{0, 1, 0, 1}));
}

TEST(DeviceOf, NeedsTheConsentOfBothRanksThatShare) {
  auto ranks = ranks_that_see({"A"}, 2, true);
  ranks[0].may_share = false;
  expect_says(refusal_of(ranks), {"ranks 0 and 1 would share"});
}

TEST(DeviceOf, RefusesRanksOfWhichOnlySomeSeeAGpu) {
  auto ranks = ranks_that_see({"A", "B"}, 2);
  ranks[1].identities.clear();
  expect_says(refusal_of(ranks), {"rank 1 sees no GPU and rank 0 sees 2 GPUs", "nvidia-smi"});
}

TEST(DeviceOf, ReportsTheTroubleOfARank) {
  auto ranks = ranks_that_see({}, 2);
  ranks[1].trouble = "CUDA_VISIBLE_DEVICES is \"7\"";
  expect_says(refusal_of(ranks), {"rank 1: CUDA_VISIBLE_DEVICES is \"7\""});
}

TEST(DeviceOf, IsExchangedBetweenTheRanks) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  constexpr int kRanks = 3;
  std::vector<std::string> results(kRanks);
  testing::run_ranks_as_threads(kRanks, [&](testing::Rank& self) {
    auto& result = results[static_cast<std::size_t>(self.rank())];
    try {
      const auto device = device_of(point.join(self.rank(), self.size()), {.share = true});
      result = device.is_cpu() ? "cpu" : "gpu";
    } catch (const UsageError& error) {
      result = error.what();
    }
  });
  EXPECT_EQ(results, std::vector<std::string>(kRanks, at::hasCUDA() ? "gpu" : "cpu"));
}

}  // namespace
}  // namespace lockstep
