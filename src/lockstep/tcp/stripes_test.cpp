// Several data connections between two processes.
#include <gtest/gtest.h>

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

class Stripes : public ::testing::TestWithParam<std::tuple<int, DataProtection>> {};
INSTANTIATE_TEST_SUITE_P(Counts, Stripes,
                         ::testing::Combine(::testing::Values(1, 2, 4, kMaxStripes),
                                            ::testing::Values(DataProtection::checksums,
                                                              DataProtection::encrypted)));

// The server opens as many as the client wants.
TEST_P(Stripes, TransfersOfAnySizeArriveInBothDirectionsAtOnce) {
  const auto [num_stripes, protection] = GetParam();
  Side low(0, 3s, test_secret(), protection);
  Side high(1, 3s, test_secret(), protection, num_stripes);
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
  const auto [num_stripes, protection] = GetParam();
  Side low(0, 3s, test_secret(), protection);
  Side high(1, 3s, test_secret(), protection, num_stripes);
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

TEST(StripesOfALink, EveryOneCarriesData) {
  constexpr int kStripes = 3;
  for (int stripe = 0; stripe < kStripes; ++stripe) {
    Side low(0);
    Side high(1, 3s, test_secret(), DataProtection::checksums, kStripes);
    FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                      {Fault::Kind::tap, 1 + stripe, /*to_server=*/true});
    connect(low, high, proxy.endpoint());
    const Transfer transfer(high, low, 1, 5, 12'000'000);
    EXPECT_TRUE(comes_true([&] { return transfer.has_arrived(); }));
    EXPECT_GT(proxy.tapped().size(), 256U << 10) << "stripe " << stripe;
  }
}

// Frames that follow a missing one are received, but not announced.
TEST(StripesOfALink, AMissingFrameIsNotPassedOver) {
  constexpr std::size_t kBytes = 6'000'000;
  Side low(0, 400ms);
  Side high(1, 400ms, test_secret(), DataProtection::checksums, 3);
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

TEST(StripesOfALink, AFlippedBitOfAnyIsDetected) {
  for (int stripe = 0; stripe < 3; ++stripe) {
    Side low(0);
    Side high(1, 3s, test_secret(), DataProtection::checksums, 3);
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

// One connection per interface, whichever side has several.
TEST(StripesOfALink, EveryInterfaceIsUsed) {
  constexpr int kInterfaces = 3;
  for (int interface = 1; interface < kInterfaces; ++interface) {
    Side low(0, 3s, test_secret(), DataProtection::checksums, 1, kInterfaces);
    Side high(1, 3s, test_secret(), DataProtection::checksums, 1, 2);
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
