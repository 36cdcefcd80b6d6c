// The headers of hosts of several ranks: how many messages they take, what each rank receives, and
// that every rank uses them in the order in which they were entered.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "lockstep/fabric/network_data_plane_internal.h"
#include "lockstep/fabric/test_wires_internal.h"

namespace lockstep {
namespace {

using Group = std::vector<std::shared_ptr<NetworkGroup>>;
using Kind = NetworkMessage::Kind;

void enter_all(const Group& group, std::uint64_t number) {
  for (const auto& each : group) enter(*each, number);
}

void expect_entered_by_all(const Group& group, std::uint64_t number) {
  for (const auto& each : group) {
    for (int rank = 0; rank < each->size(); ++rank) {
      EXPECT_EQ(entered(*each, rank), number);
      EXPECT_EQ(each->record(rank, number).weight, weight_of(rank, number));
      EXPECT_EQ(each->signature(rank, number), 77 * number);
    }
  }
}

// A group in which all ranks have entered the first call of a process, which is not combined.
Group group_after_first_call(Wires& wires) {
  auto group = wires.make_group();
  enter_all(group, 1);
  const auto size = group.size();
  EXPECT_EQ(wires.deliver_all(), size * (size - 1));
  expect_entered_by_all(group, 1);
  return group;
}

TEST(HostHeaders, TheRankThatEntersLastPostsForItsHost) {
  struct Layout {
    std::vector<int> hosts;
    std::size_t messages;  // inside hosts, and from each host to each rank of the others
  };
  for (const auto& [hosts, messages] :
       {Layout{{0, 0, 1, 1}, 4 + 4}, Layout{{0, 1, 0, 1, 0, 1}, 12 + 6},
        Layout{{0, 0, 0, 1}, 6 + 4}, Layout{{0, 1, 2}, 6}, Layout{{0, 0, 0}, 6},
        Layout{{0, 0, 0, 0, 1, 1, 1, 1}, 24 + 8}}) {
    Wires wires(hosts);
    const auto group = group_after_first_call(wires);
    for (std::uint64_t number = 2; number < 5; ++number) {
      enter_all(group, number);
      EXPECT_EQ(wires.deliver_all(), messages);
      expect_entered_by_all(group, number);
    }
  }
}

TEST(HostHeaders, HeadersThatArriveInAnotherOrderAreUsedInThatOfTheCalls) {
  Wires wires({0, 0, 1, 1});
  const auto group = group_after_first_call(wires);
  const auto& reader = *group[2];
  enter(*group[0], 2);
  enter(*group[1], 2);  // posts for its host
  enter(*group[1], 3);
  enter(*group[0], 3);  // posts for its host
  ASSERT_TRUE(wires.deliver(0, 2));
  EXPECT_EQ(entered(reader, 0), 1U);
  EXPECT_EQ(reader.record(0, 1).weight, weight_of(0, 1));
  ASSERT_TRUE(wires.deliver(1, 2));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(entered(reader, rank), 3U);
    EXPECT_EQ(reader.record(rank, 2).weight, weight_of(rank, 2));
    EXPECT_EQ(reader.record(rank, 3).weight, weight_of(rank, 3));
  }
}

TEST(HostHeaders, ASecondHeaderOfACallIsIgnored) {
  Wires wires({0, 0, 1, 1});
  const auto group = group_after_first_call(wires);
  enter(*group[0], 2);
  enter(*group[1], 2);
  const auto message = wires.network(1).to[2].front();
  EXPECT_TRUE(wires.network(2).ends[0]->receive(0, message.bytes, {}));
  wires.deliver_all();
  enter(*group[0], 3);
  enter(*group[1], 3);
  wires.deliver_all();
  EXPECT_TRUE(wires.network(2).ends[0]->receive(1, message.bytes, {}));
  EXPECT_EQ(entered(*group[2], 0), 3U);
  EXPECT_EQ(group[2]->record(0, 2).weight, weight_of(0, 2));
}

NetworkMessage header_of(int origin, std::uint64_t number) {
  NetworkMessage header{.kind = Kind::entered, .number = number, .origin = origin};
  return header;
}

TEST(HostHeaders, HeadersThatTheSenderCannotHaveAreInvalid) {
  Wires wires({0, 0, 1, 1, 2});
  const auto group = group_after_first_call(wires);
  const auto is_valid = [&](int sender, const NetworkMessage& header) {
    NetworkMessage message{.kind = Kind::host_entered};
    message.headers = {header_of(sender, 1), header};
    return wires.network(2).ends[0]->receive(sender, encode(message), {});
  };
  EXPECT_TRUE(is_valid(0, header_of(1, 2)));
  for (const int origin : {-1, 2, 3, 4, 5}) EXPECT_FALSE(is_valid(0, header_of(origin, 2)));
  EXPECT_FALSE(is_valid(3, header_of(3, 2))) << "ranks of one host tell each other directly";
  EXPECT_TRUE(is_valid(0, header_of(0, kMaxCallsInFlight)));
  EXPECT_FALSE(is_valid(0, header_of(0, 1 + kMaxCallsInFlight))) << "call 1 is not completed";
  EXPECT_EQ(entered(*group[2], 0), 1U);
  EXPECT_EQ(entered(*group[2], 1), 2U);
}

TEST(HostHeaders, AGroupOfOneRankPerHostTakesNone) {
  const auto network = std::make_shared<WireNetwork>(2);
  const NetworkGroup group(network, 0, {0, 1});
  NetworkMessage message{.kind = Kind::host_entered};
  message.headers = {header_of(1, 1)};
  EXPECT_FALSE(network->ends[0]->receive(1, encode(message), {}));
}

TEST(HostHeaders, ARankThatWaitsForItsHostTellsTheOthersAfterAWhile) {
  Wires wires({0, 0, 1, 1});
  const auto group = group_after_first_call(wires);
  const auto settle = [&] {
    group[0]->settle([&](int peer, std::uint64_t end, std::span<const std::byte> message) {
      wires.network(0).post(peer, end, message);
    });
    return wires.deliver_all();
  };
  enter(*group[0], 2);
  enter(*group[0], 3);
  EXPECT_EQ(wires.deliver_all(), 2U);  // to its host
  EXPECT_EQ(settle(), 0U);
  EXPECT_EQ(entered(*group[2], 0), 1U);
  std::this_thread::sleep_for(kHeaderPatience);
  EXPECT_EQ(settle(), 2U) << "both calls in one message";
  EXPECT_EQ(settle(), 0U) << "once";
  EXPECT_EQ(entered(*group[2], 0), 3U);
  EXPECT_EQ(entered(*group[2], 1), 1U) << "the late rank";
  enter(*group[1], 2);
  enter(*group[1], 3);
  wires.deliver_all();
  EXPECT_EQ(entered(*group[3], 1), 3U);
}

// Another rank of the host has posted the header of call 2, which may still be on its way.
TEST(HostHeaders, ALateHeaderComesWithAllThatOthersMayNotHave) {
  const auto parts = std::make_shared<WireMemory::Parts>();
  for (int rank = 0; rank < 2; ++rank) parts->emplace_back(HostHeaders::bytes_per_rank(16) / 8);
  HostHeaders own(std::make_shared<WireMemory>(parts, 0), 0, 2);
  HostHeaders other(std::make_shared<WireMemory>(parts, 1), 1, 2);
  const auto enter_both = [&](std::uint64_t number) {
    const Bytes header(number, std::byte{1});
    EXPECT_FALSE(own.enter(number, header));
    return number == 3 || other.enter(number, header);
  };
  for (const std::uint64_t number : {1, 2, 3}) EXPECT_TRUE(enter_both(number));
  const HostHeaders::Clock::time_point now{};
  EXPECT_TRUE(own.take_late({.entered = 3, .completed = 1}, now, {}).empty());
  EXPECT_TRUE(own.take_late({.entered = 2, .completed = 1}, now, kHeaderPatience).empty());
  const auto late =
      own.take_late({.entered = 2, .completed = 1}, now + kHeaderPatience, kHeaderPatience);
  ASSERT_EQ(late.size(), 2U);
  EXPECT_EQ(late[0].size(), 2U);
  EXPECT_EQ(late[1].size(), 3U);
  EXPECT_TRUE(own.take_unposted(1).empty()) << "they have been posted";
}

TEST(HostHeaders, ARankThatLeavesOrFailsHasToldTheOthersItsLastCall) {
  for (const bool fails : {false, true}) {
    Wires wires({0, 0, 1, 1});
    const auto group = group_after_first_call(wires);
    enter(*group[0], 2);
    if (fails) {
      group[0]->fail({0, "a test"});
    } else {
      group[0]->set_standing(Standing::left);
    }
    wires.deliver_all();
    EXPECT_EQ(entered(*group[2], 0), 2U);
    EXPECT_EQ(group[2]->standing(0), fails ? Standing::failed : Standing::left);
  }
}

// A call of one rank, with random input.
struct MadeCall {
  Call call;
  Bytes input;
};

MadeCall draw_call(std::mt19937_64& random, int rank, int size, const Call& shape) {
  MadeCall made{.call = shape, .input = Bytes(input_bytes(shape, rank, size))};
  for (auto& byte : made.input) byte = static_cast<std::byte>(random());
  made.call.input = made.input;
  return made;
}

TEST(HostHeaders, EveryRankReceivesTheInputThatItNeeds) {
  std::mt19937_64 random(3);
  const std::vector<int> hosts{0, 0, 0, 1, 1, 2};
  const int size = static_cast<int>(hosts.size());
  Wires wires(hosts);
  const auto group = group_after_first_call(wires);
  std::uint64_t number = 1;
  for (int kind = 0; kind < kNumCollectives; ++kind) {
    for (const std::int64_t count : {0, 3, 2730}) {  // 2730 × 6 bytes: almost 16 KiB
      Call shape{.kind = static_cast<Collective>(kind), .root = kind % size, .count = count};
      if (has_owners(shape.kind) || shape.kind == Collective::allocate) continue;
      ++number;
      std::vector<MadeCall> calls;
      for (int rank = 0; rank < size; ++rank) {
        calls.push_back(draw_call(random, rank, size, shape));
      }
      for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        enter(*group[rank], number, calls[rank].call, exchange::input_for);
      }
      for (int rank = 0; rank < size; ++rank) {
        for (const auto& wire : wires.network(rank).to) {
          for (const auto& message : wire) EXPECT_LE(message.bytes.size(), kMaxMessageBytes);
        }
      }
      wires.deliver_all();
      expect_entered_by_all(group, number);
      for (const auto& reader : group) {
        for (int from = 0; from < size; ++from) {
          if (from == reader->rank()) continue;
          const auto& call = calls[static_cast<std::size_t>(from)].call;
          EXPECT_TRUE(std::ranges::equal(reader->input(from, number),
                                         exchange::input_for(call, from, reader->rank())))
              << to_string(shape.kind) << " from " << from << " to " << reader->rank();
        }
      }
    }
  }
}

TEST(HostHeaders, OfAPieceForEachRankOnlyThatPieceIsSent) {
  Wires wires({0, 0, 1, 1});
  const auto group = group_after_first_call(wires);
  const Bytes input(16U << 10);
  for (const auto& each : group) {
    enter(*each, 2, {.kind = Collective::all_to_all, .count = 4096, .input = input},
          exchange::input_for);
  }
  std::size_t bytes = 0;
  for (const int from : {0, 1}) {
    for (const int to : {2, 3}) {
      for (const auto& message : wires.network(from).to[static_cast<std::size_t>(to)]) {
        bytes += message.bytes.size();
      }
    }
  }
  EXPECT_GE(bytes, 4 * 4096U);
  EXPECT_LE(bytes, 4 * (4096U + kMaxEnteredBytes));
}

// Ranks enter calls of two groups, each in an order of its own, up to the calls that may be in
// flight; messages are delivered in a random order that keeps that of each pair of ranks.
class RandomOrder : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomOrder, ::testing::Range<std::uint64_t>(0, 20));

TEST_P(RandomOrder, WhatARankEntersEarlierIsSeenEarlierInBothGroups) {
  constexpr int kSize = 5;
  constexpr std::uint64_t kCalls = 200;  // several times those in flight
  std::mt19937_64 random(GetParam());
  Wires wires({0, 0, 0, 1, 1});
  const std::array groups{wires.make_group(), wires.make_group()};
  using Counts = std::array<std::uint64_t, 2>;  // of each group
  std::array<std::vector<Counts>, kSize> history;
  for (auto& of_rank : history) of_rank.push_back({0, 0});
  const auto enter_some = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    const auto which = random() % 8 == 0 ? random() % 2 : random() / 1024 % 16 / 15;
    auto counts = history[index].back();
    auto& own = *groups[which][index];
    const auto lowest = own.counters().lowest(Condition::Of::completed);
    if (counts[which] == kCalls || counts[which] >= lowest + kMaxCallsInFlight) return;
    enter(own, ++counts[which]);
    history[index].push_back(counts);
  };
  const auto complete_some = [&](int rank) {
    auto& own = *groups[random() % 2][static_cast<std::size_t>(rank)];
    const auto number = own.counters().lowest(Condition::Of::entered);
    if (number > 0) own.complete(number);
  };
  const auto check_reader = [&](int reader) {
    for (int rank = 0; rank < kSize; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      Counts seen{};
      for (std::size_t which = 0; which < seen.size(); ++which) {
        const auto& group = *groups[which][static_cast<std::size_t>(reader)];
        seen[which] = entered(group, rank);
        const auto completed = group.counters().value(reader, Condition::Of::completed);
        for (auto number = completed + 1; number <= seen[which]; ++number) {
          ASSERT_EQ(group.record(rank, number).weight, weight_of(rank, number));
        }
      }
      ASSERT_EQ(std::count(history[index].begin(), history[index].end(), seen), 1)
          << "rank " << reader << " sees calls " << seen[0] << " and " << seen[1] << " of rank "
          << rank;
    }
  };
  const auto is_done = [&] {
    return std::all_of(history.begin(), history.end(), [](const auto& of_rank) {
      return of_rank.back() == Counts{kCalls, kCalls};
    });
  };
  for (int step = 0; !is_done(); ++step) {
    ASSERT_LT(step, 1'000'000) << "no progress";
    const int rank = static_cast<int>(random() % kSize);
    enter_some(rank);
    if (random() % 4 == 0) complete_some(rank);
    const int to = static_cast<int>(random() % kSize);
    const int from = static_cast<int>(random() % kSize);
    if (!wires.has_messages(from, to)) continue;
    ASSERT_TRUE(wires.deliver(from, to));
    check_reader(to);
  }
  wires.deliver_all();
  for (const auto& group : groups) expect_entered_by_all(group, kCalls);
}

}  // namespace
}  // namespace lockstep
