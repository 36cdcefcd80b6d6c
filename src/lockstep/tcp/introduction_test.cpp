// Processes that are connected when they first have something for each other.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/tcp/test_sides_internal.h"

namespace lockstep {
namespace {

void introduce(Side& low, Side& high) {
  low.network.introduce(1, high.network.address_of(high.end));
  high.network.introduce(0, low.network.address_of(low.end));
}

// Posts messages to the other side, and returns them.
std::vector<std::string> post_some(Side& from, int to, const Side& other) {
  std::vector<std::string> sent;
  for (int i = 0; i < 20; ++i) {
    sent.push_back(std::to_string(i) + std::string(static_cast<std::size_t>(i) * 300, 'x'));
    from.network.post(to, other.end, bytes_of_text(sent.back()));
  }
  return sent;
}

TEST(Introduction, ConnectsNothingBeforeSomethingIsPosted) {
  Side low(0);
  Side high(1);
  introduce(low, high);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(low.network.counts().empty());
  EXPECT_TRUE(high.network.counts().empty());
}

TEST(Introduction, TheSideThatPostsFirstConnectsAndEverythingArrivesInOrder) {
  for (const int first : {0, 1}) {
    Side low(0);
    Side high(1);
    introduce(low, high);
    auto& from = first == 0 ? low : high;
    auto& to = first == 0 ? high : low;
    const auto sent = post_some(from, 1 - first, to);
    EXPECT_TRUE(comes_true([&] { return to.notes.messages().size() == sent.size(); }));
    EXPECT_EQ(to.notes.messages(), sent);
    const auto answers = post_some(to, first, from);
    EXPECT_TRUE(comes_true([&] { return from.notes.messages() == answers; }));
    EXPECT_TRUE(comes_true([&] { return low.network.counts().size() == 1; }));
  }
}

TEST(Introduction, BothMayBeginAtTheSameTimeAndHaveOneLink) {
  for (int round = 0; round < 100; ++round) {
    Side low(0, std::chrono::seconds(3), test_secret(), DataProtection::checksums, 1 + round % 3);
    Side high(1);
    introduce(low, high);
    const auto bytes = random_bytes(100'000);
    Bytes received(bytes.size());
    Network::Word word = 0;
    Network::Word gone = 0;
    high.network.expect(0, high.end, {1, 0}, received, word);
    std::vector<std::string> from_high;
    std::thread other([&] { from_high = post_some(high, 0, low); });
    low.network.send(1, high.end, low.end, {1, 0}, 0, bytes, gone);
    const auto from_low = post_some(low, 1, high);
    other.join();
    ASSERT_TRUE(comes_true([&] {
      return low.notes.messages() == from_high && high.notes.messages() == from_low &&
             word == bytes.size() && gone == bytes.size();
    })) << round
        << ": " << low.network.loss_of(1) << ", " << high.network.loss_of(0);
    ASSERT_EQ(received, bytes);
    // The last stripe may be connected later.
    ASSERT_TRUE(comes_true(
        [&] { return low.network.counts().size() == 1 && high.network.counts().size() == 1; }));
  }
}

TEST(Introduction, APeerThatCannotBeReachedIsLostAndTheEndsAreTold) {
  for (const int own : {0, 1}) {
    Side side(own);
    auto address = side.network.address_of(side.end);
    address.endpoints = {{"127.0.0.1", 1}};  // no listener
    const int peer = 1 - own;
    side.network.introduce(peer, address);
    side.network.post(peer, 1, bytes_of_text("hello"));
    EXPECT_TRUE(comes_true([&] { return side.network.is_lost(peer); }));
    const auto loss = side.network.loss_of(peer);
    EXPECT_NE(loss.find("cannot connect to it at 127.0.0.1:1: "), std::string::npos) << loss;
    EXPECT_EQ(side.notes.losses(), std::vector{loss});
  }
}

TEST(Introduction, ANetworkThatEndsDeliversFirst) {
  Side high(1);
  {
    Side low(0);
    introduce(low, high);
    low.network.post(1, high.end, bytes_of_text("goodbye"));
  }
  EXPECT_TRUE(comes_true([&] { return high.network.is_lost(0); }));
  EXPECT_EQ(high.notes.messages(), std::vector<std::string>{"goodbye"});
  EXPECT_EQ(high.network.loss_of(0), "");
}

}  // namespace
}  // namespace lockstep
