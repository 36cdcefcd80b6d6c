// Spans that need several rounds through the staging areas, spans that end at the edges of a
// window, and spans longer than any 32-bit number.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"
#include "lockstep/kernels/caching.h"
#include "lockstep/shm/group_memory_internal.h"

namespace lockstep {
namespace {

INSTANTIATE_TEST_SUITE_P(Threads, GroupTest,
                         ::testing::Combine(::testing::Values(TransportKind::shm),
                                            ::testing::Values(Ranks::threads),
                                            ::testing::Values(1, 2, 3, 5)));
INSTANTIATE_TEST_SUITE_P(Processes, GroupTest,
                         ::testing::Combine(::testing::Values(TransportKind::shm),
                                            ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 3)));

// The bytes of each piece that a rank stages in one round.
std::int64_t window_bytes(Collective kind, int size) {
  const bool a_piece_for_each = kind == Collective::reduce_scatter || kind == Collective::scatter ||
                                kind == Collective::all_to_all;
  return static_cast<std::int64_t>(kStageBytes) / (a_piece_for_each ? size : 1);
}

TEST_P(GroupTest, SpansAtTheEdgesOfTheStagingWindowAreWhole) {
  run_group(setting(), [](Group& group) {
    const CallMemory memory(group, (6U << 20) * static_cast<std::size_t>(group.size()));
    std::uint64_t seed = 0;
    for (const auto kind : kDataCollectives) {
      const auto window = window_bytes(kind, group.size());
      for (const auto bytes : {window - 8, window, window + 8, 3 * window + 136}) {
        const auto where = seed % 2 == 0 ? MemoryKind::ordinary : MemoryKind::mixed;
        const auto form = ++seed % 3 == 0 && can_be_in_place(kind) ? Form::in_place : Form::apart;
        const Call call{.kind = kind,
                        .dtype = DType::float64,
                        .root = static_cast<int>(seed) % group.size(),
                        .count = bytes / 8};
        CheckedCall(group, call, form, memory.span(where), seed).wait();
      }
    }
  });
}

// Outputs of this size are written past the caches, unless the last-level cache is very large.
TEST_P(GroupTest, LargeOutputsInOrdinaryMemoryAreWhole) {
  run_group(setting(), [](Group& group) {
    const auto output = std::min<std::int64_t>(stream_bytes(), 16 << 20) + 136;
    std::uint64_t seed = 0;
    for (const auto kind : {Collective::all_reduce, Collective::all_gather}) {
      const auto pieces = kind == Collective::all_gather ? group.size() : 1;
      const Call call{.kind = kind, .dtype = DType::int8, .count = output / pieces + 1};
      CheckedCall(group, call, Form::apart, std::span<std::byte>{}, ++seed).wait();
    }
  });
}

// The halves of the staging areas alternate over all calls, which have one round or three; calls
// with other recipes are in between.
TEST_P(GroupTest, StagedCallsFollowEachOtherWithoutWaiting) {
  run_group(setting(), [](Group& group) {
    const CallMemory memory(group, 4U << 20);
    std::vector<std::unique_ptr<CheckedCall>> calls;
    for (std::uint64_t seed = 0; seed < 48; ++seed) {
      const auto kind = kDataCollectives[seed * 5 % kDataCollectives.size()];
      const std::int64_t count = seed % 7 == 3 ? 90'000 : seed % 5 == 2 ? 20 : 900;
      const Call call{.kind = kind, .dtype = DType::int8, .count = count};
      calls.push_back(
          std::make_unique<CheckedCall>(group, call, Form::apart, std::span<std::byte>{}, seed));
      if (seed % 8 == 7) {
        CheckedCall(group, {.kind = Collective::all_reduce, .count = 3000}, Form::in_place,
                    memory.span(MemoryKind::registered), seed)
            .wait();
      }
    }
    for (auto& call : calls) call->wait();
  });
}

std::size_t free_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(Windows, MoreThan2To31ElementsAreSummed) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers need several times the memory of the test";
#endif
  constexpr std::size_t kCount = (std::size_t{1} << 31) + 4099;
  if (free_bytes() < 3 * kCount) GTEST_SKIP() << "less than 7 GB of memory is free";
  GroupSetting setting;
  setting.size = 2;
  run_group(setting, [](Group& group) {
    const auto memory = group.allocate(kCount);
    auto span = memory->bytes();
    const auto own = static_cast<unsigned char>(group.rank() + 1);
    std::memset(span.data(), own, span.size());
    span[kCount - 1] = std::byte{static_cast<unsigned char>(own * 7)};
    run(group, {.kind = Collective::all_reduce,
                .count = static_cast<std::int64_t>(kCount),
                .input = span,
                .output = span});
    EXPECT_EQ(span[kCount - 1], std::byte{21});
    // Each byte but the last is 1 + 2: the span equals itself shifted by one.
    EXPECT_EQ(span[0], std::byte{3});
    EXPECT_EQ(std::memcmp(span.data(), span.data() + 1, kCount - 2), 0);
  });
}

}  // namespace
}  // namespace lockstep
