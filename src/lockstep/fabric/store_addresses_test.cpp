#include "lockstep/fabric/store_addresses.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using testing::Rank;
using testing::run_ranks_as_threads;

// As backend tcp publishes them (tcp/wire.h); the first rank of a host adds the name of a socket.
std::vector<std::string> addresses_of_tcp(int hosts, int ranks_per_host) {
  std::mt19937_64 random(5);
  std::vector<std::string> addresses;
  for (int host = 0; host < hosts; ++host) {
    auto pid = 1000 + random() % 4'000'000;
    const auto started = 1'000'000 + random() % 1'000'000'000;
    for (int rank = 0; rank < ranks_per_host; ++rank) {
      addresses.push_back(fmt::format("10.77.{}.{}:{} {:016x} 0 {} {}|{}", host / 256, host % 256,
                                      32768 + random() % 28000, random(), ++pid, started,
                                      rank == 0 ? fmt::format("{:032x}", random()) : ""));
    }
  }
  return addresses;
}

TEST(StoreAddresses, AreReadAsTheyWereJoined) {
  std::vector<std::vector<std::string>> lists{
      {"a"}, {"", "", ""}, {"name", "", ""}, {"", "a b", " ", "  a", "a b ", "a b  c", "a"}};
  lists.push_back({std::string(191, 'x'), std::string(191, 'x') + "y", std::string(130, 'x')});
  lists.push_back(addresses_of_tcp(5, 3));
  for (const auto& list : lists) {
    EXPECT_EQ(split_addresses(join_addresses(list), static_cast<int>(list.size())), list);
  }
}

TEST(StoreAddresses, OfOneHostAreMuchShorterTogether) {
  const auto addresses = addresses_of_tcp(1, 1000);
  std::size_t apart = 0;
  for (const auto& address : addresses) apart += address.size();
  EXPECT_LT(join_addresses(addresses).size(), apart * 2 / 3);
}

TEST(StoreAddresses, OtherTextIsRefused) {
  const auto text = join_addresses(std::vector<std::string>{"ab 1", "ab 2"});
  EXPECT_THROW((void)split_addresses(text, 3), UsageError);
  EXPECT_THROW((void)split_addresses(text.substr(0, text.size() - 1), 2), UsageError);
  EXPECT_THROW((void)split_addresses("plain\n", 1), UsageError);
  EXPECT_THROW((void)split_addresses("\x83"
                                     "abc\n",
                                     1),
               UsageError);  // shares with nothing
}

// A request for each pair would be 4,032 requests.
TEST(StoreAddresses, OfManyRanksTakeFourRequestsPerRank) {
  constexpr int size = 64;
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  const auto addresses = addresses_of_tcp(8, 8);
  std::uint64_t before = 0;
  run_ranks_as_threads(size, [&](Rank& rank) {
    const auto world = point.join(rank.rank(), size);
    rank.barrier(soon());
    if (rank.rank() == 0) before = server->num_requests();
    rank.barrier(soon());
    StoreAddressExchange exchange(world, "test", soon());
    exchange.exchange(addresses[static_cast<std::size_t>(rank.rank())]);
    for (int other = 0; other < size; ++other) {
      EXPECT_EQ(exchange.of(other), addresses[static_cast<std::size_t>(other)]);
    }
    rank.barrier(soon());
    if (rank.rank() == 0) {
      EXPECT_GT(server->num_requests(), before);
      EXPECT_LE(server->num_requests() - before, 4U * size);
    }
    rank.barrier(soon());
  });
}

TEST(StoreAddresses, OnlyTheRootsAddressIsStoredWhereTheOthersHaveNone) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  run_ranks_as_threads(3, [&](Rank& rank) {
    const auto world = point.join(rank.rank(), 3);
    StoreAddressExchange exchange(world, "test", soon());
    exchange.exchange(rank.rank() == 0 ? "socket" : "");
    EXPECT_EQ(exchange.of(0), "socket");
    EXPECT_EQ(exchange.of(2), "");
    rank.barrier(soon());
  });
}

TEST(StoreAddresses, ARankThatDoesNotComeIsNamed) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  run_ranks_as_threads(3, [&](Rank& rank) {
    const auto world = point.join(rank.rank(), 3);
    if (rank.rank() != 2) {
      StoreAddressExchange exchange(world, "test", Deadline::after(std::chrono::milliseconds(200)));
      try {
        exchange.exchange("address");
        FAIL() << "rank 2 has not come";
      } catch (const PeerError& error) {
        EXPECT_EQ(error.rank(), 2) << error.what();
      }
    }
    rank.barrier(soon());
  });
}

TEST(StoreAddresses, ARankZeroThatLeavesBeforeItHasJoinedThemIsNamed) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  run_ranks_as_threads(2, [&](Rank& rank) {
    const auto world = point.join(rank.rank(), 2);
    if (rank.rank() == 0) {
      world.store().barrier("test", all_ranks(2), soon());
      return;
    }
    StoreAddressExchange exchange(world, "test", soon());
    exchange.exchange("address");
    try {
      (void)exchange.of(0);
      FAIL() << "rank 0 has left";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 0) << error.what();
    }
  });
}

}  // namespace
}  // namespace lockstep
