// Encrypted data: between two networks, through a proxy that keeps or damages bytes, and in a
// group.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"
#include "lockstep/tcp/connect.h"
#include "lockstep/tcp/test_faulty_proxy_internal.h"
#include "lockstep/tcp/test_sides_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;

struct EncryptedSide : Side {
  explicit EncryptedSide(int rank) : Side(rank, 3s, test_secret(), DataProtection::encrypted) {}
};

// Moves `bytes` from the high side to the low one.
struct Transfer {
  Transfer(Side& low, Side& high, std::uint64_t number, const Bytes& bytes) : there(bytes.size()) {
    low.network.expect(1, low.end, {number, 0}, there, received);
    high.network.send(0, low.end, high.end, {number, 0}, 0, bytes, sent);
  }
  [[nodiscard]] bool is_done() const { return received == there.size() && sent == there.size(); }
  Bytes there;
  Network::Word received = 0;
  Network::Word sent = 0;
};

TEST(Encryption, DataArriveAsTheyWereSentInBothDirections) {
  EncryptedSide low(0);
  EncryptedSide high(1);
  connect(low, high);
  for (const std::size_t size : {1, 100, 262'144, 262'145, 5'000'001}) {
    const auto sent = random_bytes(size);
    Bytes back(size);
    Network::Word back_word = 0;
    Network::Word sent_word = 0;
    high.network.expect(0, high.end, {size, 0}, back, back_word);
    low.network.send(1, high.end, low.end, {size, 0}, 0, sent, sent_word);
    const Transfer transfer(low, high, size, sent);
    EXPECT_TRUE(comes_true([&] { return transfer.is_done() && back_word == size; }));
    EXPECT_EQ(transfer.there, sent);
    EXPECT_EQ(back, sent);
  }
}

// How often a pattern of 16 bytes, repeated in all data, is seen on the wire.
std::size_t patterns_seen(DataProtection protection) {
  Side low(0, 3s, test_secret(), protection);
  Side high(1, 3s, test_secret(), protection);
  FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(), {Fault::Kind::tap, 1, true});
  connect(low, high, proxy.endpoint());
  const std::string pattern = "lockstep-pattern";
  std::string text;
  while (text.size() < 1'000'000) text += pattern;
  const auto view = std::as_bytes(std::span(text));
  const Transfer transfer(low, high, 1, Bytes(view.begin(), view.end()));
  EXPECT_TRUE(comes_true([&] { return transfer.is_done(); }));
  const auto tapped = proxy.tapped();
  EXPECT_GE(tapped.size(), text.size());
  std::size_t seen = 0;
  const auto wanted = std::as_bytes(std::span(pattern));
  for (auto at = tapped.begin(); at != tapped.end(); ++seen) {
    at = std::search(at, tapped.end(), wanted.begin(), wanted.end());
    if (at == tapped.end()) break;
    at += std::ptrdiff_t{16};
  }
  return seen;
}

TEST(Encryption, NoByteIsReadableOnTheWire) {
  EXPECT_GT(patterns_seen(DataProtection::checksums), 60'000U) << "the test sees what is readable";
  EXPECT_EQ(patterns_seen(DataProtection::encrypted), 0U);
}

// In the first header, in its tag, in the bytes, in their tag, in the second header.
TEST(Encryption, AFlippedBitIsDetectedAndNamesTheLink) {
  constexpr std::size_t kBegin = 132 / 2 + 28;  // the handshake of one side, the hello
  constexpr std::size_t kBody = kMaxDataBytes;
  for (const std::size_t at : {std::size_t{5}, std::size_t{50}, std::size_t{64},
                               std::size_t{100'000}, 64 + kBody + 3, 64 + kBody + 16 + 20}) {
    SCOPED_TRACE(at);
    EncryptedSide low(0);
    EncryptedSide high(1);
    FaultyProxy proxy(low.network.address_of(low.end).endpoints.front(),
                      {Fault::Kind::flip, 1, /*to_server=*/true, kBegin + at});
    connect(low, high, proxy.endpoint());
    const auto sent = random_bytes(kBody + 1'000'000);
    const Transfer transfer(low, high, 1, sent);
    EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1) && high.network.is_lost(0); }));
    EXPECT_TRUE(proxy.has_struck());
    // The reason reaches the sender too, unless the proxy resets its connection first.
    EXPECT_NE(low.network.loss_of(1).find("changed on the way"), std::string::npos)
        << low.network.loss_of(1);
    EXPECT_EQ(transfer.received, at < 64 + kBody + 16 ? 0 : kBody);
    EXPECT_TRUE(std::equal(sent.begin(),
                           sent.begin() + static_cast<std::ptrdiff_t>(transfer.received.load()),
                           transfer.there.begin()));
  }
}

// Both sides count what they do not use: otherwise no later frame could be opened.
TEST(Encryption, ForgottenTransfersLeaveTheStreamIntact) {
  EncryptedSide low(0);
  EncryptedSide high(1);
  connect(low, high);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    auto sent = std::make_unique<Bytes>(random_bytes(6'000'000));
    auto transfer = std::make_unique<Transfer>(low, high, i, *sent);
    std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
    if (i % 3 != 0) low.network.forget(low.end, i);
    high.network.forget(high.end, i);
    sent.reset();
    low.network.forget(low.end, i);
  }
  const auto last = random_bytes(600'000);
  const Transfer transfer(low, high, 99, last);
  EXPECT_TRUE(comes_true([&] { return transfer.is_done(); })) << low.network.loss_of(1);
  EXPECT_EQ(transfer.there, last);
}

TEST(Encryption, RanksThatDifferAreRefusedWithTheRemedy) {
  for (const bool server_encrypts : {true, false}) {
    const auto of = [](bool encrypts) {
      return encrypts ? DataProtection::encrypted : DataProtection::checksums;
    };
    Side low(0, 3s, test_secret(), of(server_encrypts));
    Side high(1, 3s, test_secret(), of(!server_encrypts));
    const auto wanted =
        server_encrypts ? "rank 0 encrypts data, rank 1 does not" : "rank 1 encrypts data, rank 0";
    try {
      high.network.connect(0, low.network.address_of(low.end), soon(), {});
      ADD_FAILURE() << "connected";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("LOCKSTEP_ENCRYPT=1"), std::string::npos);
    }
    EXPECT_TRUE(comes_true([&] { return low.network.is_lost(1); }));
    EXPECT_NE(low.network.loss_of(1).find(wanted), std::string::npos) << low.network.loss_of(1);
  }
}

// The results of a few calls of every size class, by three ranks.
std::vector<Bytes> results_of(bool encrypts) {
  std::vector<Bytes> results(3);
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(3, [&](testing::Rank& self) {
    const auto world = point.join(self.rank(), 3);
    const auto group = make_group(world, GroupOptions{.timeout = 20s},
                                  connect_by_tcp({.encrypts_data = encrypts}));
    std::mt19937 random(static_cast<unsigned>(self.rank()));
    auto& all = results[static_cast<std::size_t>(self.rank())];
    for (const std::int64_t count : {5, 5'000, 100'000, 2'000'000}) {
      std::vector<float> values(static_cast<std::size_t>(count));
      for (auto& value : values) value = static_cast<float>(random()) * 1e-3F - 1e6F;
      const auto bytes = std::as_writable_bytes(std::span(values));
      group->wait(*group->start({.kind = Collective::all_reduce,
                                 .dtype = DType::float32,
                                 .count = count,
                                 .input = bytes,
                                 .output = bytes},
                                nullptr));
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  });
  return results;
}

TEST(Encryption, AGroupHasTheBitsOfOneWithoutEncryption) {
  const auto encrypted = results_of(true);
  EXPECT_EQ(encrypted, results_of(false));
  EXPECT_EQ(encrypted[0], encrypted[1]);
  EXPECT_EQ(encrypted[0], encrypted[2]);
}

}  // namespace
}  // namespace lockstep
