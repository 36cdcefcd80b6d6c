// Groups created by split().
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

INSTANTIATE_TEST_SUITE_P(ThreadsMappedApart, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::apart),
                                            ::testing::Values(1, 2, 3, 5)));
INSTANTIATE_TEST_SUITE_P(Device, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::apart),
                                            ::testing::Values(1, 3, 5)));
INSTANTIATE_TEST_SUITE_P(Processes, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(4)));

std::vector<int> global_ranks_of(const Group& group) {
  std::vector<int> ranks;
  for (int rank = 0; rank < group.size(); ++rank) ranks.push_back(group.global_rank(rank));
  return ranks;
}

void check_some(Group& group, std::uint64_t seed) {
  for (const auto kind : kDataCollectives) {
    CheckedCall(group, {.kind = kind, .dtype = DType::bfloat16, .count = 300}, Form::apart, {},
                seed)
        .wait();
  }
}

TEST_P(GroupTest, RanksOfOneColorFormAGroupInTheOrderOfTheirKeys) {
  run_group(setting(), [](Group& group) {
    const int color = group.rank() % 2;
    const auto upwards = group.split(color, 0);
    const auto downwards = group.split(color, -group.rank());
    std::vector<int> expected;
    for (int rank = color; rank < group.size(); rank += 2) expected.push_back(rank);
    EXPECT_EQ(global_ranks_of(*upwards), expected);
    std::reverse(expected.begin(), expected.end());
    EXPECT_EQ(global_ranks_of(*downwards), expected);
    EXPECT_EQ(downwards->global_rank(downwards->rank()), group.rank());
    check_some(*upwards, 1);
    check_some(*downwards, 2);
    check_some(group, 3);
  });
}

TEST_P(GroupTest, ASubgroupKnowsItsGlobalRanks) {
  run_group(setting(), [](Group& group) {
    const auto backwards = group.split(0, -group.rank());
    const auto pair = backwards->split(backwards->rank() / 2, 0);
    const auto alone = pair->split(pair->rank(), 0);
    EXPECT_EQ(pair->global_rank(pair->rank()), group.rank());
    EXPECT_EQ(alone->size(), 1);
    EXPECT_EQ(alone->global_rank(0), group.rank());
    check_some(*backwards, 1);
    check_some(*pair, 2);
    check_some(*alone, 3);
  });
}

TEST_P(GroupTest, ASubgroupOutlivesItsParent) {
  const auto setting = this->setting();
  run_group(setting, [](Group& group) {
    std::shared_ptr<Group> grandchild;
    {
      const auto child = group.split(0, 0);
      grandchild = child->split(0, 0);
    }
    check_some(*grandchild, 1);
  });
}

TEST_P(GroupTest, OverlappingGroupsRunAtTheSameTime) {
  run_group(setting(), [](Group& group) {
    const auto halves = group.split(group.rank() / 2, 0);
    const auto shifted = group.split((group.rank() + 1) / 2, 0);
    std::vector<std::unique_ptr<CheckedCall>> calls;
    for (std::uint64_t i = 0; i < 30; ++i) {
      for (auto* part : {halves.get(), shifted.get(), &group}) {
        const Call call{.kind = Collective::all_reduce, .dtype = DType::float32, .count = 1000};
        calls.push_back(
            std::make_unique<CheckedCall>(*part, call, Form::apart, std::span<std::byte>{}, i));
      }
    }
    const bool backwards = group.rank() % 2 == 1;
    if (backwards) std::reverse(calls.begin(), calls.end());
    for (auto& call : calls) call->wait();
  });
}

}  // namespace
}  // namespace lockstep
