#include "lockstep/net/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

Bytes from_hex(std::string_view digits) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(
        static_cast<std::byte>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

Bytes bytes_of(const Secret& secret) { return {secret.bytes().begin(), secret.bytes().end()}; }

Secret known_secret() {
  std::array<std::byte, Secret::kBytes> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  return Secret::from_bytes(bytes);
}

HandshakeNonce nonce_of(int value) {
  HandshakeNonce nonce{};
  nonce.fill(static_cast<std::byte>(value));
  return nonce;
}

const HandshakeContext kContext{"job-7", 3};
constexpr const char* kStranger =
    "the other side does not know this job's secret, or does not belong to job";

// The message with which feeding `bytes` is refused; empty when it is accepted.
std::string refusal_of(Handshake& handshake, std::span<const std::byte> bytes) {
  try {
    (void)handshake.feed(bytes);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

// The three messages of a handshake that succeeds.
struct Recording {
  Bytes hello;
  Bytes reply;
  Bytes proof;
};

Recording shake_hands(Handshake& client, Handshake& server) {
  Recording messages;
  messages.hello = client.release_output();
  EXPECT_EQ(server.feed(messages.hello), messages.hello.size());
  messages.reply = server.release_output();
  EXPECT_EQ(client.feed(messages.reply), messages.reply.size());
  messages.proof = client.release_output();
  EXPECT_EQ(server.feed(messages.proof), messages.proof.size());
  return messages;
}

TEST(Handshake, TwoThatShareSecretJobAndRoundAgreeOnKeys) {
  const auto secret = Secret::random();
  auto client = Handshake::client(secret, kContext);
  auto server = Handshake::server(secret, kContext);
  (void)shake_hands(client, server);
  ASSERT_TRUE(client.done() && server.done());
  EXPECT_EQ(bytes_of(client.keys().sending), bytes_of(server.keys().receiving));
  EXPECT_EQ(bytes_of(client.keys().receiving), bytes_of(server.keys().sending));
  EXPECT_NE(bytes_of(client.keys().sending), bytes_of(client.keys().receiving));
  EXPECT_TRUE(client.release_output().empty() && server.release_output().empty());
  EXPECT_EQ(client.wanted() + server.wanted(), 0u);
}

TEST(Handshake, EachConnectionHasItsOwnKeys) {
  const auto secret = Secret::random();
  Bytes keys;
  for (int i = 0; i < 2; ++i) {
    auto client = Handshake::client(secret, kContext);
    auto server = Handshake::server(secret, kContext);
    (void)shake_hands(client, server);
    EXPECT_NE(bytes_of(client.keys().sending), keys);
    keys = bytes_of(client.keys().sending);
  }
}

// Computed with Python's hmac from the description in handshake.h alone.
TEST(Handshake, TheBytesAreThoseOfTheDescription) {
  auto client = Handshake::client(known_secret(), kContext, nonce_of(0x11));
  auto server = Handshake::server(known_secret(), kContext, nonce_of(0x22));
  const auto messages = shake_hands(client, server);
  const std::string client_nonce(64, '1');
  const std::string server_nonce(64, '2');
  EXPECT_EQ(messages.hello, from_hex("4c4b5331" + client_nonce));
  EXPECT_EQ(
      messages.reply,
      from_hex(server_nonce + "a79e4a528d88ea986da06247396a773425d9fa1aa2be7024da801f99c8cb88a7"));
  EXPECT_EQ(messages.proof,
            from_hex("4276a727155e7a7ee05383a399bf5a07955ebb538fbd3efe90e1557eb5d06ab5"));
  EXPECT_EQ(bytes_of(client.keys().sending),
            from_hex("3262393f135e3552dd4141ad0c0ab673c57ac28133fc6056b71de1fafe7cb712"));
  EXPECT_EQ(bytes_of(client.keys().receiving),
            from_hex("b2b16008aeb1e1bbf64a4b248668529b688db7cd6a25e136d35d0c4fe0adb479"));
}

TEST(Handshake, ChunkSizesMakeNoDifference) {
  const auto secret = Secret::random();
  for (std::size_t cut = 1; cut <= 40; ++cut) {
    auto client = Handshake::client(secret, kContext);
    auto server = Handshake::server(secret, kContext);
    for (auto* to : {&server, &client, &server}) {
      const auto message = (to == &server ? client : server).release_output();
      for (std::size_t at = 0; at < message.size(); at += cut) {
        const auto part = std::span(message).subspan(at, std::min(cut, message.size() - at));
        EXPECT_EQ(to->wanted(), message.size() - at);
        EXPECT_EQ(to->feed(part), part.size());
      }
    }
    EXPECT_TRUE(client.done() && server.done());
  }
}

TEST(Handshake, BytesThatFollowAreLeftForTheFrames) {
  const auto secret = Secret::random();
  auto client = Handshake::client(secret, kContext);
  auto server = Handshake::server(secret, kContext);
  (void)server.feed(client.release_output());
  (void)client.feed(server.release_output());
  auto proof = client.release_output();
  proof.resize(proof.size() + 9);
  EXPECT_EQ(server.feed(proof), proof.size() - 9);
  EXPECT_EQ(server.feed(proof), 0u);
  EXPECT_TRUE(server.done());
}

TEST(Handshake, AnotherSecretJobOrRoundIsRefusedByBothSides) {
  const auto secret = Secret::random();
  const auto another = Secret::random();
  const struct {
    const Secret& secret;
    HandshakeContext context;
  } strangers[] = {
      {another, kContext}, {secret, {"job-8", 3}}, {secret, {"job-7", 2}}, {secret, {"", 3}}};
  for (const auto& stranger : strangers) {
    auto client = Handshake::client(stranger.secret, stranger.context);
    auto server = Handshake::server(secret, kContext);
    (void)server.feed(client.release_output());
    const auto said = refusal_of(client, server.release_output());
    EXPECT_EQ(said.rfind(kStranger, 0), 0u) << said;
    EXPECT_TRUE(client.release_output().empty()) << "a client gave its proof to a stranger";

    // A client that continues anyway, with the proof that its own server would accept.
    auto true_server = Handshake::server(stranger.secret, stranger.context, nonce_of(5));
    auto client_again = Handshake::client(stranger.secret, stranger.context, nonce_of(6));
    const auto messages = shake_hands(client_again, true_server);
    auto second_server = Handshake::server(secret, kContext, nonce_of(5));
    (void)second_server.feed(messages.hello);
    const auto answer = refusal_of(second_server, messages.proof);
    EXPECT_EQ(answer.rfind(std::string(kStranger) + " \"job-7\", round 3", 0), 0u) << answer;
    EXPECT_FALSE(second_server.done());
  }
}

TEST(Handshake, RecordedBytesProveNothingOnAnotherConnection) {
  const auto secret = Secret::random();
  auto client = Handshake::client(secret, kContext);
  auto server = Handshake::server(secret, kContext);
  const auto recorded = shake_hands(client, server);

  auto new_server = Handshake::server(secret, kContext);
  EXPECT_EQ(new_server.feed(recorded.hello), recorded.hello.size());
  EXPECT_NE(refusal_of(new_server, recorded.proof), "");

  auto new_client = Handshake::client(secret, kContext);
  EXPECT_NE(refusal_of(new_client, recorded.reply), "");
}

TEST(Handshake, TheProofOfOneSideIsNotValidForTheOther) {
  const auto secret = Secret::random();
  // The server receives its own proof.
  auto server = Handshake::server(secret, kContext);
  (void)server.feed(Handshake::client(secret, kContext).release_output());
  const auto reply = server.release_output();
  EXPECT_NE(refusal_of(server, std::span(reply).last(32)), "");

  // A client receives its own messages, or those of another client.
  auto client = Handshake::client(secret, kContext);
  auto words = client.release_output();
  const auto more = Handshake::client(secret, kContext).release_output();
  words.insert(words.end(), more.begin(), more.end());
  EXPECT_NE(refusal_of(client, words), "");

  // A server receives the reply of a server.
  auto left = Handshake::server(secret, kContext);
  EXPECT_NE(refusal_of(left, reply), "");
}

TEST(Handshake, EveryByteIsNeeded) {
  const auto secret = known_secret();
  auto client = Handshake::client(secret, kContext, nonce_of(1));
  auto server = Handshake::server(secret, kContext, nonce_of(2));
  const auto whole = shake_hands(client, server);
  Bytes to_server = whole.hello;
  to_server.insert(to_server.end(), whole.proof.begin(), whole.proof.end());
  for (std::size_t size = 0; size < to_server.size(); ++size) {
    auto cut_short = Handshake::server(secret, kContext, nonce_of(2));
    EXPECT_EQ(cut_short.feed(std::span(to_server).first(size)), size);
    EXPECT_FALSE(cut_short.done());
    EXPECT_GT(cut_short.wanted(), 0u);
  }
  for (std::size_t size = 0; size < whole.reply.size(); ++size) {
    auto cut_short = Handshake::client(secret, kContext, nonce_of(1));
    EXPECT_EQ(cut_short.feed(std::span(whole.reply).first(size)), size);
    EXPECT_FALSE(cut_short.done());
  }
}

// Exchanges the three messages with one bit flipped. Returns the message of the side that refuses.
std::string refusal_of_flipped(const Secret& secret, std::size_t bit) {
  auto client = Handshake::client(secret, kContext);
  auto server = Handshake::server(secret, kContext);
  std::size_t begin = 0;  // of the message, in bytes of the whole
  for (auto* to : {&server, &client, &server}) {
    auto message = (to == &server ? client : server).release_output();
    const bool is_here = bit / 8 >= begin && bit / 8 < begin + message.size();
    if (is_here) message[bit / 8 - begin] ^= static_cast<std::byte>(1u << (bit % 8));
    begin += message.size();
    auto said = refusal_of(*to, message);
    if (!said.empty()) return said;
  }
  return "";
}

TEST(Handshake, OneFlippedBitAnywhereIsRefused) {
  const auto secret = Secret::random();
  constexpr std::size_t num_bits = std::size_t{36 + 64 + 32} * 8;
  for (std::size_t bit = 0; bit < num_bits; ++bit) {
    const auto said = refusal_of_flipped(secret, bit);
    const bool in_magic = bit < 32;
    EXPECT_EQ(said.rfind(in_magic ? "a connection began with" : kStranger, 0), 0u)
        << "bit " << bit << ": " << said;
  }
}

TEST(Handshake, AnotherProtocolIsRefusedAtItsFirstByte) {
  auto server = Handshake::server(Secret::random(), kContext);
  const std::string_view request = "GET / HTTP/1.1\r\n";
  const auto said = refusal_of(server, std::as_bytes(std::span(request)));
  EXPECT_EQ(said.rfind("a connection began with \"GET ", 0), 0u) << said;
  auto strict = Handshake::server(Secret::random(), kContext);
  EXPECT_NE(refusal_of(strict, std::as_bytes(std::span(request.substr(0, 1)))), "");
}

TEST(Handshake, ARefusedPeerStaysRefused) {
  const auto secret = Secret::random();
  auto server = Handshake::server(secret, kContext);
  const auto first = refusal_of(server, Bytes(1));
  ASSERT_NE(first, "");
  EXPECT_EQ(refusal_of(server, Handshake::client(secret, kContext).release_output()), first);
  EXPECT_TRUE(server.release_output().empty());
  EXPECT_EQ(server.wanted(), 0u);
}

TEST(Handshake, AJobIdHasAtMost64Bytes) {
  const auto secret = Secret::random();
  EXPECT_NO_THROW((void)Handshake::client(secret, {std::string(64, 'j'), 0}));
  EXPECT_THROW((void)Handshake::client(secret, {std::string(65, 'j'), 0}), UsageError);
  EXPECT_THROW((void)Handshake::server(secret, {std::string(65, 'j'), 0}), UsageError);
}

TEST(HandshakeDeathTest, ThereAreNoKeysBeforeTheProof) {
  auto client = Handshake::client(Secret::random(), kContext);
  EXPECT_DEATH((void)client.keys(), "keys are for an authenticated peer");
}

}  // namespace
}  // namespace lockstep
