#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/shm/group_memory_internal.h"

namespace lockstep {
namespace {

// Two ranks in one process, each with its own GroupMemory over the same memory.
struct Pair {
  std::shared_ptr<SharedMemory> memory = std::make_shared<SharedMemory>(GroupMemory::bytes_for(2));
  GroupMemory first{memory, 0, 2};
  GroupMemory second{memory, 1, 2};

  struct Both {
    std::shared_ptr<Allocation> first;
    std::shared_ptr<Allocation> second;
    std::weak_ptr<SharedMemory> memory;
  };
  Both allocate(std::size_t bytes) {
    const auto made = std::make_shared<SharedMemory>(Allocation::memory_bytes(bytes, 2));
    return {first.add(made, bytes), second.add(made, bytes), made};
  }
};

TEST(GroupMemory, TheOtherRankResolvesALocation) {
  Pair pair;
  const auto small = pair.allocate(100);
  const auto large = pair.allocate(10'000);
  const auto span = large.first->bytes().subspan(1234, 50);
  const auto location = pair.first.locate(span);
  EXPECT_EQ(location, (Location{1, 1234}));
  EXPECT_EQ(pair.second.resolve(0, location), span.data());
  EXPECT_EQ(pair.second.resolve(1, location), large.second->bytes().data() + 1234);
}

TEST(GroupMemory, ASpanThatIsNotWhollyInThisRanksPartIsNotRegistered) {
  Pair pair;
  const auto both = pair.allocate(page_bytes());
  const std::vector<std::byte> ordinary(100);
  const Location nowhere;
  EXPECT_EQ(pair.first.locate(ordinary), nowhere);
  EXPECT_EQ(pair.first.locate(both.second->bytes()), nowhere) << "the other rank's part";
  EXPECT_EQ(pair.first.locate({}), nowhere);
  const std::span beyond(both.first->bytes().data() + 1, page_bytes());
  EXPECT_EQ(pair.first.locate(beyond), nowhere) << "one byte too long";
  EXPECT_EQ(pair.first.resolve(0, nowhere), nullptr);
}

TEST(GroupMemory, TheRanksPartsAreOnSeparatePagesAndZeroed) {
  Pair pair;
  const auto both = pair.allocate(page_bytes() + 1);
  EXPECT_EQ(both.second->bytes().data() - both.first->bytes().data(),
            static_cast<std::ptrdiff_t>(2 * page_bytes()));
  for (const auto byte : both.second->bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST(GroupMemory, AnAllocationIsUnmappedBySweepAfterAllRanksHaveDroppedIt) {
  Pair pair;
  auto both = pair.allocate(100);
  const auto* start = both.first->bytes().data();
  both.first.reset();
  pair.first.sweep();
  EXPECT_EQ(pair.first.locate(std::span(start, 10)), (Location{0, 0})) << "the other still has it";
  both.second.reset();
  pair.first.sweep();
  EXPECT_FALSE(both.memory.expired()) << "the second rank has not called sweep()";
  pair.second.sweep();
  EXPECT_TRUE(both.memory.expired());
  EXPECT_EQ(pair.first.resolve(0, {0, 0}), nullptr);
  const auto next = pair.allocate(100);
  EXPECT_EQ(pair.first.locate(next.first->bytes()), (Location{1, 0})) << "numbers are not reused";
}

TEST(GroupMemory, InlineBuffersStagingAreasAndMessageQueuesDoNotOverlap) {
  Pair pair;
  const auto* begin = pair.memory->bytes().data();
  const auto* end = begin + pair.memory->bytes().size();
  std::vector<std::pair<const std::byte*, std::size_t>> areas;
  areas.emplace_back(begin, ControlBlocks::bytes_for(2) + 128);
  for (int rank = 0; rank < 2; ++rank) {
    for (std::uint64_t call = 0; call < kMaxCallsInFlight; ++call) {
      for (const std::size_t bytes : {kSmallInlineBytes, kMaxInlineBytes}) {
        areas.emplace_back(pair.first.inline_buffer(rank, call, bytes), bytes);
      }
    }
    for (std::uint64_t round = 0; round < 2; ++round) {
      areas.emplace_back(pair.first.staged_input(rank, round), kStageBytes);
      areas.emplace_back(pair.first.staged_result(rank, round), kStageBytes);
    }
    for (int to = 0; to < 2; ++to) {
      areas.emplace_back(reinterpret_cast<const std::byte*>(&pair.first.message_queue(rank, to)),
                         sizeof(MessageQueue));
    }
  }
  std::sort(areas.begin(), areas.end());
  for (std::size_t i = 0; i + 1 < areas.size(); ++i) {
    EXPECT_LE(areas[i].first + areas[i].second, areas[i + 1].first) << i;
  }
  EXPECT_LE(areas.back().first + areas.back().second, end);
  for (const std::size_t bytes : {0UL, kSmallInlineBytes, kSmallInlineBytes + 1, kMaxInlineBytes}) {
    EXPECT_EQ(pair.first.inline_buffer(0, 3, bytes),
              pair.second.inline_buffer(0, 3 + kMaxCallsInFlight, bytes));
  }
}

TEST(GroupMemory, TheOneShotThresholdIsSharedByAllRanks) {
  Pair pair;
  EXPECT_FALSE(pair.second.one_shot_bytes());
  pair.first.set_one_shot_bytes(0);
  EXPECT_EQ(pair.second.one_shot_bytes(), 0U);
}

}  // namespace
}  // namespace lockstep
