// The plan of copies; tests/gpu/checkpoints_test.cpp tests the copies themselves.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "lockstep/base/random.h"
#include "lockstep/checkpoint/device_snapshot_internal.h"

namespace lockstep {
namespace {

const int kStorages[3] = {};

TEST(CopyPlan, NeighborsInOneStorageAreOneCopy) {
  const std::vector<MemoryPart> parts{
      {&kStorages[0], 5000, 100}, {&kStorages[0], 4096, 904}, {&kStorages[0], 5200, 16}};
  const auto plan = plan_copies(parts);
  ASSERT_EQ(plan.ranges.size(), 1u);
  EXPECT_EQ(plan.ranges[0].first, 1u);
  EXPECT_EQ(plan.ranges[0].bytes, 1120u);
  EXPECT_EQ(plan.offsets, (std::vector<std::size_t>{904, 0, 1104}));
}

TEST(CopyPlan, FarPartsAndOtherStoragesAreSeparateCopies) {
  const std::vector<MemoryPart> parts{
      {&kStorages[0], 0, 8}, {&kStorages[0], 8 + kLargestGap + 1, 8}, {&kStorages[1], 16, 8}};
  const auto plan = plan_copies(parts);
  EXPECT_EQ(plan.ranges.size(), 3u);
  EXPECT_LT(plan.total, 3u * 1024);  // the gap is not copied
}

// Memory is modelled as text; the copies of the plan must give every part its own bytes back.
TEST(CopyPlan, EveryPartFindsItsBytesInTheSnapshot) {
  RandomStream random({.seed = 3, .purpose = random_purpose("copy plan")}, 0, 0);
  for (int round = 0; round < 200; ++round) {
    std::map<const void*, std::string> memory;
    for (const auto& storage : kStorages) {
      auto& bytes = memory[&storage];
      for (int i = 0; i < 40'000; ++i) bytes += static_cast<char>(random.below(256));
    }
    std::vector<MemoryPart> parts;
    for (auto i = random.below(20); i > 0; --i) {
      const auto begin = random.below(39'000);  // parts may overlap
      parts.push_back({&kStorages[random.below(3)], begin, random.below(1000)});
    }
    const auto plan = plan_copies(parts);
    std::string snapshot(plan.total, '?');
    std::size_t filled = 0;
    for (const auto& range : plan.ranges) {
      EXPECT_GE(range.offset, filled);  // ranges do not overlap, and are in order
      filled = range.offset + range.bytes;
      const auto& part = parts[range.first];
      snapshot.replace(range.offset, range.bytes, memory[part.storage], part.begin, range.bytes);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(snapshot.substr(plan.offsets[i], parts[i].bytes),
                memory[parts[i].storage].substr(parts[i].begin, parts[i].bytes));
    }
  }
}

}  // namespace
}  // namespace lockstep
