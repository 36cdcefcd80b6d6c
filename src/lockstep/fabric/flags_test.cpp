// The arguments of a call besides its data: flags, a weight, and the leaves of a contribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

INSTANTIATE_TEST_SUITE_P(Threads, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Range(1, 9)));
INSTANTIATE_TEST_SUITE_P(Processes, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(3)));
INSTANTIATE_TEST_SUITE_P(DeviceThreads, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Values(1, 2, 3, 8)));
INSTANTIATE_TEST_SUITE_P(DeviceProcesses, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(3)));

void check_flags(Group& group, Collective kind) {
  const int last = group.size() - 1;
  for (const std::int64_t count : {0, 10, 20'000}) {
    const auto owners = oracle::draw_owners(group.size(), count, 1);
    std::vector<std::byte> data(static_cast<std::size_t>(count));
    const CallFlags own{.sum = group.rank() + 1,
                        .equal = group.rank() == 0 ? 7U : 8U,
                        .any = group.rank() == last ? 4U : 0U,
                        .absent = group.rank() != 0};
    const Call call{.kind = kind,
                    .count = count,
                    .input = data,
                    .output = data,
                    .flags = own,
                    .owners = has_owners(kind) ? &owners : nullptr};
    const auto operation = group.start(on_device(group, call), nullptr);
    finish(group, *operation);
    const auto& all = operation->flags();
    EXPECT_EQ(all.sum, (last + 1) * (last + 2) / 2);
    EXPECT_EQ(all.all_equal, last == 0);
    EXPECT_EQ(all.any, 4U);
    EXPECT_EQ(all.num_absent, last);
    EXPECT_EQ(all.first_present, 0);
  }
}

TEST_P(GroupTest, FlagsOfAllRanksAreCombined) {
  run_group(setting(), [](Group& group) {
    for (const auto kind :
         {Collective::all_reduce, Collective::reduce_to_owners, Collective::gather_from_owners}) {
      check_flags(group, kind);
    }
  });
}

// The last rank sits out; in a group of one it is rank 0.
void check_weights(Group& group, Collective kind, std::int64_t count, std::int64_t each) {
  const int size = group.size();
  const auto owners = oracle::draw_owners(size, count, 2);
  const auto owner = oracle::owner_of_each(owners);
  std::vector<float> data(static_cast<std::size_t>(count));
  const bool out = group.rank() == size - 1;
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = out ? 0 : static_cast<float>(i % 9);
  const auto before = data;
  const auto bytes = std::as_writable_bytes(std::span(data));
  const Call call{.kind = kind,
                  .dtype = DType::float32,
                  .op = ReduceOp::weighted_average,
                  .count = count,
                  .input = bytes,
                  .output = bytes,
                  .flags = CallFlags{.absent = out},
                  .weight = out ? 0 : each,
                  .owners = has_owners(kind) ? &owners : nullptr};
  const auto operation = group.start(on_device(group, call), nullptr);
  finish(group, *operation);
  EXPECT_EQ(operation->flags().first_present, size == 1 ? -1 : 0);
  const auto weight = std::max<std::int64_t>(1, each * (size - 1));
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto sum = static_cast<float>((size - 1) * static_cast<int>(i % 9));
    const bool is_reduced = !has_owners(kind) || owner[i] == group.rank();
    ASSERT_EQ(data[i], is_reduced ? sum / static_cast<float>(weight) : before[i]);
  }
}

TEST_P(GroupTest, AWeightedAverageDividesByTheSumOfTheWeights) {
  run_group(setting(), [](Group& group) {
    for (const std::int64_t count : {7, 2'000, 40'000}) {  // one-shot, two-shot and staged
      for (const std::int64_t each : {0, 1, 3}) {
        check_weights(group, Collective::all_reduce, count, each);
        check_weights(group, Collective::reduce_to_owners, count, each);
      }
    }
  });
}

TEST_P(GroupTest, AWeightedAverageNeedsAWeight) {
  run_group(setting(), [](Group& group) {
    Call call{
        .kind = Collective::all_reduce, .dtype = DType::float32, .op = ReduceOp::weighted_average};
    EXPECT_THROW((void)group.start(on_device(group, call), nullptr), UsageError);
    call.weight = -1;
    EXPECT_THROW((void)group.start(on_device(group, call), nullptr), UsageError);
  });
}

// Eight leaves divided over `size` ranks in aligned blocks.
std::vector<LeafInterval> eight_leaves_over(int size) {
  std::vector<LeafInterval> blocks{{0, 8}};
  while (static_cast<int>(blocks.size()) < size) {
    auto largest = blocks.end();
    for (auto block = blocks.begin(); block != blocks.end(); ++block) {
      if (largest == blocks.end() || block->end - block->begin >= largest->end - largest->begin) {
        largest = block;
      }
    }
    const auto middle = (largest->begin + largest->end) / 2;
    const LeafInterval upper{middle, largest->end};
    largest->end = middle;
    blocks.insert(largest + 1, upper);
  }
  return blocks;
}

TEST_P(GroupTest, ASumOverLeavesIsBitIdenticalForEveryNumberOfRanks) {
  run_group(setting(), [](Group& group) {
    constexpr std::size_t kCount = 500;
    std::vector<oracle::Bytes> leaves;
    for (std::uint64_t leaf = 0; leaf < 8; ++leaf) {
      leaves.push_back(oracle::draw(DType::float32, kCount, 1, leaf));
    }
    const auto interval = eight_leaves_over(group.size())[static_cast<std::size_t>(group.rank())];
    const auto own_leaves =
        std::span(leaves).subspan(static_cast<std::size_t>(interval.begin),
                                  static_cast<std::size_t>(interval.end - interval.begin));
    for (const std::size_t count : {std::size_t{20}, kCount}) {  // inline and staged
      auto sum = oracle::reduced(DType::float32, ReduceOp::sum, own_leaves);
      sum.resize(count * 4);
      auto expected = oracle::reduced(DType::float32, ReduceOp::sum, leaves);
      expected.resize(count * 4);
      auto owned = sum;
      run(group, {.kind = Collective::all_reduce,
                  .dtype = DType::float32,
                  .count = static_cast<std::int64_t>(count),
                  .input = sum,
                  .output = sum,
                  .leaves = interval});
      EXPECT_EQ(sum, expected);
      // The first rank owns the first half, the last rank the other one.
      const auto half = static_cast<std::int64_t>(count / 2);
      const Owners owners(group.size(),
                          std::vector<OwnedPiece>{{0, half}, {group.size() - 1, half}});
      run(group, {.kind = Collective::reduce_to_owners,
                  .dtype = DType::float32,
                  .count = 2 * half,
                  .input = owned,
                  .output = owned,
                  .leaves = interval,
                  .owners = &owners});
      for (const auto& range : owners.of(group.rank())) {
        const auto begin = static_cast<std::ptrdiff_t>(range.begin) * 4;
        EXPECT_TRUE(std::equal(owned.begin() + begin, owned.begin() + begin + range.count * 4,
                               expected.begin() + begin));
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
