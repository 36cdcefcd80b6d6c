// Several data connections between two processes, moved by one thread or by several.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/tcp/test_faulty_proxy_internal.h"
#include "lockstep/tcp/test_sides_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// A transfer from one side to the other.
struct Transfer {
  Transfer(Side& from, Side& to, int rank_of_from, std::uint64_t number, std::size_t bytes)
      : sent(random_bytes(bytes)), there(bytes) {
    const int rank_of_to = 1 - rank_of_from;
    to.network.expect(rank_of_from, to.end, {number, 0}, there, received);
    from.network.send(rank_of_to, to.end, from.end, {number, 0}, 0, sent, sent_bytes);
  }
  [[nodiscard]] bool has_arrived() const {
    return received == sent.size() && sent_bytes == sent.size();
  }

  Bytes sent;
  Bytes there;
  Network::Word received = 0;
  Network::Word sent_bytes = 0;
};

// A rank of the tests below.
struct StripedSide : Side {
  StripedSide(int rank, int num_stripes, int threads, std::chrono::milliseconds heartbeat = 3s,
              DataProtection protection = DataProtection::checksums, int num_interfaces = 1)
      : Side(rank, heartbeat, test_secret(), protection, num_stripes, num_interfaces, threads) {}
};

// Stripes, protection and threads.
class Stripes : public ::testing::TestWithParam<std::tuple<int, DataProtection, int>> {};
const auto kProtections = ::testing::Values(DataProtection::checksums, DataProtection::encrypted);
INSTANTIATE_TEST_SUITE_P(Counts, Stripes,
                         ::testing::Combine(::testing::Values(1, 2, 4, kMaxStripes), kProtections,
                                            ::testing::Values(1)));
INSTANTIATE_TEST_SUITE_P(AtOnce, Stripes,
                         ::testing::Combine(::testing::Values(4), kProtections,
                                            ::testing::Values(3)));

// The server opens as many as the client wants.
TEST_P(Stripes, TransfersOfAnySizeArriveInBothDirectionsAtOnce) {
  const auto [num_stripes, protection, threads] = GetParam();
  StripedSide low(0, 1, threads, 3s, protection);
  StripedSide high(1, num_stripes, threads, 3s, protection);
  connect(low, high);
  std::mt19937_64 random(7);
  std::vector<std::unique_ptr<Transfer>> all;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const auto bytes = 1 + random() % (i % 4 == 0 ? 3'000'000 : 20'000);
    all.push_back(std::make_unique<Transfer>(low, high, 0, i, bytes));
    all.push_back(std::make_unique<Transfer>(high, low, 1, i, bytes));
  }
  for (const auto& each : all) {
    ASSERT_TRUE(comes_true([&] { return each->has_arrived(); }))
        << low.network.loss_of(1) << high.network.loss_of(0);
    ASSERT_EQ(each->there, each->sent);
  }
}

// The memory of a forgotten transfer may be gone, also while several stripes send parts of it.
TEST_P(Stripes, ASenderThatForgetsLeavesEveryStreamIntact) {
  const auto [num_stripes, protection, threads] = GetParam();
  StripedSide low(0, 1, threads, 3s, protection);
  StripedSide high(1, num_stripes, threads, 3s, protection);
  connect(low, high);
  for (std::uint64_t i = 0; i < 8; ++i) {
    auto begun = std::make_unique<Transfer>(low, high, 0, i, 8'000'000);
    std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
    low.network.forget(low.end, i);
    high.network.forget(high.end, i);
  }
  const Transfer last(low, high, 0, 99, 2'000'000);
  EXPECT_TRUE(comes_true([&] { return last.has_arrived(); })) << high.network.loss_of(0);
  EXPECT_EQ(last.there, last.sent);
}

// The parameter: threads.
class StripesOfALink : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, StripesOfALink, ::testing::Values(1, 3));

TEST_P(StripesOfALink, EveryOneCarriesData) {
  constexpr int kStripes = 3;
  for (int stripe = 0; stripe < kStripes; ++stripe) {
    StripedSide low(0, 1, GetParam());
    StripedSide high(1, kStripes, GetParam());
    FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                      {Fault::Kind::tap, 1 + stripe, /*to_server=*/true});
    connect(low, high, proxy.endpoint());
    const Transfer transfer(high, low, 1, 5, 12'000'000);
    EXPECT_TRUE(comes_true([&] { return transfer.has_arrived(); }));
    EXPECT_GT(proxy.tapped().size(), 256U << 10) << "stripe " << stripe;
  }
}

// Frames that follow a missing one are received, but not announced.
TEST_P(StripesOfALink, AMissingFrameIsNotPassedOver) {
  constexpr std::size_t kBytes = 6'000'000;
  StripedSide low(0, 1, GetParam(), 400ms);
  StripedSide high(1, 3, GetParam(), 400ms);
  FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                    {Fault::Kind::silence, 2, /*to_server=*/true, 400'000});
  connect(low, high, proxy.endpoint());
  const Transfer transfer(high, low, 1, 5, kBytes);
  EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1); }));
  const auto arrived = static_cast<std::ptrdiff_t>(transfer.received.load());
  EXPECT_LT(transfer.received, kBytes);
  EXPECT_TRUE(
      std::equal(transfer.there.begin(), transfer.there.begin() + arrived, transfer.sent.begin()));
  const auto& there = transfer.there;
  EXPECT_TRUE(std::equal(there.end() - 1000, there.end(), transfer.sent.end() - 1000) ||
              std::any_of(there.begin() + arrived + (256 << 10), there.end(),
                          [](std::byte each) { return each != std::byte{}; }))
      << "no later frame has arrived: the test shows nothing";
}

TEST_P(StripesOfALink, AFlippedBitOfAnyIsDetected) {
  for (int stripe = 0; stripe < 3; ++stripe) {
    StripedSide low(0, 1, GetParam());
    StripedSide high(1, 3, GetParam());
    FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                      {Fault::Kind::flip, 1 + stripe, /*to_server=*/true, 300'000});
    connect(low, high, proxy.endpoint());
    const Transfer transfer(high, low, 1, 5, 6'000'000);
    EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1); }));
    EXPECT_NE(low.network.loss_of(1).find("changed on the way"), std::string::npos);
    const auto arrived = static_cast<std::ptrdiff_t>(transfer.received.load());
    EXPECT_TRUE(std::equal(transfer.there.begin(), transfer.there.begin() + arrived,
                           transfer.sent.begin()));
  }
}

TEST_P(StripesOfALink, TheLossOfAnyIsNamedAndNoByteIsAnnouncedThatHasNotArrived) {
  for (int stripe = 0; stripe < 3; ++stripe) {
    StripedSide low(0, 1, GetParam());
    StripedSide high(1, 3, GetParam());
    FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                      {Fault::Kind::reset, 1 + stripe, /*to_server=*/true, 700'000});
    connect(low, high, proxy.endpoint());
    const Transfer there(high, low, 1, 5, 6'000'000);
    const Transfer back(low, high, 0, 5, 6'000'000);
    EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1) && high.network.is_lost(0); }));
    const auto words = low.network.loss_of(1) + high.network.loss_of(0);
    EXPECT_NE(words.find("a connection to it was reset"), std::string::npos) << words;
    for (const auto* each : {&there, &back}) {
      const auto arrived = static_cast<std::ptrdiff_t>(each->received.load());
      EXPECT_TRUE(
          std::equal(each->there.begin(), each->there.begin() + arrived, each->sent.begin()));
    }
  }
}

// Memory that no one may access once it is forgotten: it is unmapped.
struct Mapping {
  explicit Mapping(std::size_t size)
      : bytes(static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
              size) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(bytes.data(), bytes.size()); }

  const std::span<std::byte> bytes;
};

// Both ends forget at any time, also while several threads copy from and to the memory.
TEST_P(StripesOfALink, WhatIsForgottenIsNeitherReadNorWritten) {
  constexpr std::size_t kBytes = 8'000'000;
  for (const auto protection : {DataProtection::checksums, DataProtection::encrypted}) {
    StripedSide low(0, 1, GetParam(), 3s, protection);
    StripedSide high(1, 4, GetParam(), 3s, protection);
    connect(low, high);
    int num_begun = 0;
    std::uint64_t number = 0;
    for (const auto limit = soon(); number < 30 || (num_begun == 0 && !limit.expired()); ++number) {
      Network::Word received = 0;
      Network::Word sent = 0;
      const auto from = std::make_unique<Mapping>(kBytes);
      auto to = std::make_unique<Mapping>(kBytes);
      low.network.expect(1, low.end, {number, 0}, to->bytes, received);
      high.network.send(0, low.end, high.end, {number, 0}, 0, from->bytes, sent);
      if (number % 2 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(50 * (number % 30)));
      for (const auto last = soon(); number % 2 == 1 && received == 0 && !last.expired();) {
        std::this_thread::yield();
      }
      low.network.forget(low.end, number);
      if (received > 0 && received < kBytes) ++num_begun;
      to.reset();
      high.network.forget(high.end, number);
    }
    EXPECT_GT(num_begun, 0) << "nothing was on its way: the test shows nothing";
    const Transfer last(high, low, 1, number, 2'000'000);
    EXPECT_TRUE(comes_true([&] { return last.has_arrived(); })) << low.network.loss_of(1);
    EXPECT_EQ(last.there, last.sent);
  }
}

// One connection per interface, whichever side has several.
TEST_P(StripesOfALink, EveryInterfaceIsUsed) {
  constexpr int kInterfaces = 3;
  for (int interface = 1; interface < kInterfaces; ++interface) {
    StripedSide low(0, 1, GetParam(), 3s, DataProtection::checksums, kInterfaces);
    StripedSide high(1, 1, GetParam(), 3s, DataProtection::checksums, 2);
    auto address = low.network.address_of(low.end);
    ASSERT_EQ(address.endpoints.size(), 3U);
    auto& endpoint = address.endpoints[static_cast<std::size_t>(interface)];
    FaultyProxy proxy(endpoint, {Fault::Kind::tap, 0, /*to_server=*/true});
    endpoint = proxy.endpoint();
    auto other = std::async(std::launch::async, [&] {
      low.network.connect(1, high.network.address_of(high.end), soon(), {});
    });
    high.network.connect(0, address, soon(), {});
    other.get();
    const Transfer there(high, low, 1, 5, 12'000'000);
    const Transfer back(low, high, 0, 5, 12'000'000);
    EXPECT_TRUE(comes_true([&] { return there.has_arrived() && back.has_arrived(); }));
    EXPECT_EQ(there.there, there.sent);
    EXPECT_GT(proxy.tapped().size(), 256U << 10) << "interface " << interface;
  }
}

}  // namespace
}  // namespace lockstep
