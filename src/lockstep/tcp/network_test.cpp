// Two networks in one process, with and without a faulty proxy between them.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tcp/test_faulty_proxy_internal.h"
#include "lockstep/tcp/test_sides_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
TEST(TcpNetwork, MessagesArriveInOrderWithoutACallerInside) {
  Side low(0);
  Side high(1);
  connect(low, high);
  std::vector<std::string> sent;
  for (int i = 0; i < 1000; ++i) {
    sent.push_back(std::to_string(i) + std::string(static_cast<std::size_t>(i) * 7 % 5000, 'x'));
    low.network.post(1, high.end, bytes_of_text(sent.back()));
  }
  EXPECT_TRUE(comes_true([&] { return high.notes.messages().size() == sent.size(); }));
  EXPECT_EQ(high.notes.messages(), sent);
}

TEST(TcpNetwork, DataAreReceivedInPlaceWhileTheCallersDoOtherThings) {
  Side low(0);
  Side high(1);
  connect(low, high);
  constexpr std::size_t kBytes = 20'000'001;
  const auto sent = random_bytes(kBytes);
  Bytes there(kBytes);
  Bytes back(kBytes);
  Network::Word there_word = 0;
  Network::Word back_word = 0;
  Network::Word sent_low = 0;
  Network::Word sent_high = 0;
  high.network.expect(0, high.end, {5, 0}, there, there_word);
  low.network.expect(1, low.end, {5, 1}, back, back_word);
  low.network.send(1, high.end, low.end, {5, 0}, 0, std::span(sent).first(kBytes / 2), sent_low);
  low.network.send(1, high.end, low.end, {5, 0}, kBytes / 2, std::span(sent).subspan(kBytes / 2),
                   sent_low);
  high.network.send(0, low.end, high.end, {5, 1}, 0, sent, sent_high);
  EXPECT_TRUE(comes_true([&] {
    return there_word == kBytes && back_word == kBytes && sent_low == kBytes && sent_high == kBytes;
  }));
  EXPECT_EQ(there, sent);
  EXPECT_EQ(back, sent);
}

TEST(TcpNetwork, AnIdleNetworkUsesNoProcessor) {
  Side low(0);
  Side high(1);
  connect(low, high);
  const auto used = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const auto before = used();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(used() - before, 200ms) << "two threads that wake up 20 times per second";
}

TEST(TcpNetwork, TheTimeOfTheThreadIsThatOfTheBytesThatItMoves) {
  Side low(0);
  Side high(1);
  connect(low, high);
  const auto sent = random_bytes(20'000'000);
  Bytes there(sent.size());
  Network::Word received = 0;
  Network::Word sent_word = 0;
  const auto begin = low.network.thread_seconds();
  low.network.expect(1, low.end, {1, 0}, there, received);
  high.network.send(0, low.end, high.end, {1, 0}, 0, sent, sent_word);
  EXPECT_TRUE(comes_true([&] { return received == sent.size(); }));
  const auto moved = low.network.thread_seconds();
  EXPECT_GT(moved - begin, 0.0002) << "20 MB are copied at less than 100 GB/s";
  std::this_thread::sleep_for(1s);
  EXPECT_LT(low.network.thread_seconds() - moved, 0.1) << "a thread that wakes up 20 times";
}

TEST(TcpNetwork, AForgottenTransferWritesNothing) {
  Side low(0);
  Side high(1);
  connect(low, high);
  const Bytes sent(1'000'000, std::byte{1});
  Bytes there(sent.size(), std::byte{7});
  Network::Word received = 0;
  Network::Word sent_word = 0;
  high.network.expect(0, high.end, {5, 0}, there, received);
  high.network.forget(high.end, 5);
  low.network.send(1, high.end, low.end, {5, 0}, 0, sent, sent_word);
  low.network.post(1, high.end, bytes_of_text("after"));
  Bytes later(10);
  high.network.expect(0, high.end, {6, 0}, later, received);
  low.network.send(1, high.end, low.end, {6, 0}, 0, std::span(sent).first(10), sent_word);
  EXPECT_TRUE(comes_true([&] { return received == 10; })) << "the link continues";
  EXPECT_EQ(std::count(there.begin(), there.end(), std::byte{7}), 1'000'000);
  EXPECT_FALSE(high.network.is_lost(0));
}

// The sender forgets in the middle of a frame; its memory may be gone.
TEST(TcpNetwork, ASenderThatForgetsLeavesTheStreamIntact) {
  Side low(0);
  Side high(1);
  connect(low, high);
  Network::Word sent_word = 0;
  for (std::uint64_t i = 0; i < 30; ++i) {
    auto sent = std::make_unique<Bytes>(random_bytes(12'000'000));
    Bytes there(sent->size());
    Network::Word received = 0;
    high.network.expect(0, high.end, {i, 0}, there, received);
    low.network.send(1, high.end, low.end, {i, 0}, 0, *sent, sent_word);
    std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
    low.network.forget(low.end, i);
    sent.reset();
    high.network.forget(high.end, i);
  }
  const auto last = random_bytes(1000);
  Bytes there(last.size());
  Network::Word last_word = 0;
  high.network.expect(0, high.end, {99, 0}, there, last_word);
  low.network.send(1, high.end, low.end, {99, 0}, 0, last, sent_word);
  EXPECT_TRUE(comes_true([&] { return last_word == last.size(); })) << high.network.loss_of(0);
  EXPECT_EQ(there, last);
}

TEST(TcpNetwork, AProcessWithoutTheSecretIsRefused) {
  Side low(0);
  Side stranger(1, 3s, test_secret(9));
  EXPECT_THROW(stranger.network.connect(0, low.network.address_of(low.end), soon(), {}), Error);
}

TEST(TcpNetwork, AProcessOfAnotherRoundIsRefused) {
  Side low(0);
  Side high(1);
  auto address = low.network.address_of(low.end);
  address.token = "0123456789abcdef";
  EXPECT_THROW(high.network.connect(0, address, soon(), {}), Error);
}

TEST(TcpNetwork, AnUnreachablePeerIsNamedWithItsAddress) {
  Side high(1);
  auto address = high.network.address_of(1);
  address.endpoints = {{"127.0.0.1", 1}};
  try {
    high.network.connect(0, address, soon(), {});
    ADD_FAILURE() << "no error";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:1"), std::string::npos) << error.what();
  }
}

TEST(TcpNetwork, APeerThatClosesHasDeliveredEverything) {
  Side low(0);
  Bytes there(5'000'000);
  Network::Word received = 0;
  const auto sent = random_bytes(there.size());
  Network::Word sent_word = 0;
  low.network.expect(1, low.end, {1, 0}, there, received);
  {
    Side high(1);
    connect(low, high);
    high.network.send(0, low.end, high.end, {1, 0}, 0, sent, sent_word);
    high.network.post(0, low.end, bytes_of_text("bye"));
    EXPECT_TRUE(comes_true([&] { return sent_word == sent.size(); }));
  }
  EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1); }));
  EXPECT_EQ(received, sent.size());
  EXPECT_EQ(there, sent);
  EXPECT_EQ(low.notes.messages(), std::vector<std::string>{"bye"});
  EXPECT_EQ(low.network.loss_of(1), "");
}

TEST(TcpNetwork, AFlippedBitOfDataIsDetectedAndNotDelivered) {
  Side low(0);
  Side high(1);
  FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                    {Fault::Kind::flip, 1, /*to_server=*/true, 700'000});
  connect(low, high, proxy.endpoint());
  Bytes there(1'000'000);
  Network::Word received = 0;
  Network::Word sent_word = 0;
  const auto sent = random_bytes(there.size());
  low.network.expect(1, low.end, {1, 0}, there, received);
  high.network.send(0, low.end, high.end, {1, 0}, 0, sent, sent_word);
  EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1); }));
  EXPECT_NE(low.network.loss_of(1).find("changed on the way"), std::string::npos);
  EXPECT_LT(received, 700'000U);
  EXPECT_TRUE(std::equal(
      there.begin(), there.begin() + static_cast<std::ptrdiff_t>(received.load()), sent.begin()));
}

TEST(TcpNetwork, AFlippedBitOfMessagesIsDetected) {
  Side low(0);
  Side high(1);
  FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                    {Fault::Kind::flip, 0, /*to_server=*/true, 1000});
  connect(low, high, proxy.endpoint());
  for (int i = 0; i < 100; ++i) high.network.post(0, low.end, bytes_of_text("message"));
  EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1); }));
  EXPECT_NE(low.network.loss_of(1).find("changed, lost"), std::string::npos)
      << low.network.loss_of(1);
  for (const auto& message : low.notes.messages()) EXPECT_EQ(message, "message");
}

TEST(TcpNetwork, ASilentPeerIsLostAtTheHeartbeatAndAnActiveOneIsNot) {
  Side low(0, 400ms);
  Side high(1, 400ms);
  FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                    {Fault::Kind::silence, 0, /*to_server=*/true, 4000});
  connect(low, high, proxy.endpoint());
  std::this_thread::sleep_for(1200ms);
  EXPECT_FALSE(low.network.is_lost(1)) << "pings are answered without callers";
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 200; ++i) high.network.post(0, low.end, bytes_of_text("message"));
  EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1); }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 300ms);
  EXPECT_EQ(low.network.loss_of(1), "its machine answers, its process does not");
}

// A device on the way may reset one connection; the process at its other end lives.
TEST(TcpNetwork, AResetOfOneConnectionIsNotTakenForTheEndOfTheProcess) {
  for (const int connection : {0, 1}) {
    SCOPED_TRACE(connection);
    Side low(0);
    Side high(1);
    FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                      {Fault::Kind::reset, connection, /*to_server=*/true, 2000});
    connect(low, high, proxy.endpoint());
    const Bytes sent(100'000);
    Bytes there(sent.size());
    Network::Word received = 0;
    Network::Word sent_word = 0;
    low.network.expect(1, low.end, {1, 0}, there, received);
    high.network.send(0, low.end, high.end, {1, 0}, 0, sent, sent_word);
    for (int i = 0; i < 100; ++i) high.network.post(0, low.end, bytes_of_text("message"));
    EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1) && high.network.is_lost(0); }));
    const auto is_told = [](const std::string& loss) {
      return loss.find("a connection to it was reset") != std::string::npos;
    };
    const bool low_knows = is_told(low.network.loss_of(1));
    const bool high_knows = is_told(high.network.loss_of(0));
    // Without the connection of messages, the second one to notice may only see that all end.
    EXPECT_TRUE(connection == 0 ? low_knows || high_knows : low_knows && high_knows)
        << "'" << low.network.loss_of(1) << "', '" << high.network.loss_of(0) << "'";
  }
}

TEST(TcpNetwork, AnInvalidMessageLosesThePeerThatSentIt) {
  Side low(0);
  Side high(1);
  connect(low, high);
  high.network.post(0, low.end, bytes_of_text("invalid"));
  EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1); }));
  EXPECT_EQ(low.network.loss_of(1), "it sent an invalid message");
}

// Any process that finds the port of a listener may send anything.
TEST(TcpNetwork, StrangeBytesDisturbNoRank) {
  Side low(0);
  Side high(1);
  std::mt19937 random(3);
  std::vector<Socket> strangers;
  for (int i = 0; i < 50; ++i) {
    strangers.push_back(Socket::connect(low.network.address_of(1).endpoints.front(), soon()));
    Bytes junk(random() % 500);
    for (auto& byte : junk) byte = static_cast<std::byte>(random());
    if (i % 3 == 0 && junk.size() > 4) std::copy_n(bytes_of_text("LKS1").begin(), 4, junk.begin());
    if (!junk.empty()) (void)strangers.back().try_send(junk);
  }
  connect(low, high);
  low.network.post(1, high.end, bytes_of_text("hello"));
  EXPECT_TRUE(comes_true([&] { return high.notes.messages().size() == 1; }));
}

}  // namespace
}  // namespace lockstep
