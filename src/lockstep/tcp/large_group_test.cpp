// A group of more ranks than are connected to each other. Ranks are threads, each with a network of
// its own, or processes if one of them is killed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/fabric/group.h"
#include "lockstep/fabric/relay.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/tcp/connect.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

constexpr int kSize = 67;

using Body = void (*)(Group& group, const World& world);

void run_large_group(Body body) {
  (void)raise_descriptor_limit();  // of one process for all ranks
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(kSize,
                                [&](testing::Rank& self) {
                                  const auto world = point.join(self.rank(), self.size());
                                  const auto group = make_group(world, {}, connect_by_tcp());
                                  body(*group, world);
                                },
                                {.limit = std::chrono::minutes(3)});
}

// Every rank contributes its number to each element.
void sum_numbers(Group& group, std::int64_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count), group.rank());
  const auto bytes = std::as_writable_bytes(std::span(values));
  group.wait(*group.start({.kind = Collective::all_reduce,
                           .dtype = DType::int32,
                           .count = count,
                           .input = bytes,
                           .output = bytes},
                          nullptr));
  ASSERT_EQ(std::count(values.begin(), values.end(), kSize * (kSize - 1) / 2), count);
}

std::size_t num_links(const World& world) { return link_counts(world.groups()->network()).size(); }

TEST(LargeGroup, ItsRanksSumThroughConnectionsToFewOthers) {
  static std::atomic<std::size_t> all_links;
  all_links = 0;
  run_large_group([](Group& group, const World& world) {
    EXPECT_EQ(num_links(world), partners_of(group.rank(), kSize).size());
    for (const std::int64_t count : {1, 2000, 300'000}) sum_numbers(group, count);
    all_links += num_links(world);
    sum_numbers(group, 1);  // no rank ends before all have counted
  });
  // The ranks beyond a power of two, three here, exchange sums with many.
  EXPECT_LT(all_links, kSize * (kSize - 1) / 3);
}

TEST(LargeGroup, EachRankReceivesItsPieceOfAnInputThatAllRelay) {
  run_large_group([](Group& group, const World& world) {
    std::vector<std::uint8_t> input(kSize);
    for (int to = 0; to < kSize; ++to) {
      input[static_cast<std::size_t>(to)] = static_cast<std::uint8_t>(group.rank() + 3 * to);
    }
    std::vector<std::uint8_t> output(kSize);
    group.wait(*group.start({.kind = Collective::all_to_all,
                             .count = 1,
                             .input = std::as_bytes(std::span(input)),
                             .output = std::as_writable_bytes(std::span(output))},
                            nullptr));
    for (int from = 0; from < kSize; ++from) {
      ASSERT_EQ(output[static_cast<std::size_t>(from)],
                static_cast<std::uint8_t>(from + 3 * group.rank()));
    }
    std::vector<std::uint8_t> piece(1);
    group.wait(*group.start({.kind = Collective::scatter,
                             .root = 5,
                             .count = 1,
                             .input = group.rank() == 5 ? std::as_bytes(std::span(input))
                                                        : std::span<const std::byte>(),
                             .output = std::as_writable_bytes(std::span(piece))},
                            nullptr));
    EXPECT_EQ(piece.front(), static_cast<std::uint8_t>(5 + 3 * group.rank()));
    EXPECT_EQ(num_links(world), partners_of(group.rank(), kSize).size());
    sum_numbers(group, 1);  // no rank ends before all have counted
  });
}

TEST(LargeGroup, TwoRanksThatExchangeAMessageAreConnectedThen) {
  run_large_group([](Group& group, const World& world) {
    constexpr int kFrom = 0;
    constexpr int kTo = 30;  // no partner of rank 0
    std::vector<std::byte> data(100'000, std::byte{7});
    if (group.rank() == kFrom) {
      group.wait(*group.send({.peer = kTo, .count = 100'000}, data, nullptr));
    } else if (group.rank() == kTo) {
      std::vector<std::byte> received(data.size());
      group.wait(*group.receive({.peer = kFrom, .count = 100'000}, received, nullptr));
      EXPECT_EQ(received, data);
    }
    const auto links = partners_of(group.rank(), kSize).size();
    EXPECT_EQ(num_links(world), links + (group.rank() == kFrom || group.rank() == kTo ? 1 : 0));
    sum_numbers(group, 1);
  });
}

TEST(LargeGroup, ARankThatLeavesIsNamedByAll) {
  run_large_group([](Group& group, const World& /*world*/) {
    constexpr int kLeaver = 41;
    sum_numbers(group, 10);
    if (group.rank() == kLeaver) return;
    try {
      sum_numbers(group, 10);
      ADD_FAILURE() << "the sum lacks a rank";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), kLeaver) << error.what();
    }
  });
}

// In the middle of a call: most ranks have no connection to it.
TEST(LargeGroup, AKilledRankIsNamedByAll) {
  static constexpr int kVictim = 41;
  static constexpr std::int64_t kCount = 300'000;
  const auto outcomes = testing::run_ranks_as_processes(
      kSize,
      [](testing::Rank& self) {
        const auto world = world_of_processes(self.rank(), self.size());
        // Many ranks on few cores may be silent for seconds.
        const auto group =
            make_group(world, {}, connect_by_tcp({.heartbeat = std::chrono::seconds(60)}));
        sum_numbers(*group, 10);
        if (self.rank() == kVictim) {
          std::vector<std::byte> bytes(4 * kCount);
          const auto call = group->start({.kind = Collective::all_reduce,
                                          .dtype = DType::int32,
                                          .count = kCount,
                                          .input = bytes,
                                          .output = bytes},
                                         nullptr);
          (void)std::raise(SIGKILL);
        }
        try {
          sum_numbers(*group, kCount);
          ADD_FAILURE() << "the sum lacks a rank";
        } catch (const PeerError& error) {
          EXPECT_EQ(error.rank(), kVictim) << error.what();
          EXPECT_NE(std::string(error.what()).find("has ended"), std::string::npos) << error.what();
        }
      },
      {.expect = testing::Expect::anything});
  for (int rank = 0; rank < kSize; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (rank == kVictim) {
      EXPECT_EQ(outcome.signal, SIGKILL) << outcome.output;
    } else {
      EXPECT_TRUE(outcome.succeeded()) << "rank " << rank << ":\n" << outcome.output;
    }
  }
}

}  // namespace
}  // namespace lockstep
