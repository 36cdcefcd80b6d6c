// Mutual authentication of two processes by the job's secret, which is never sent, and derivation
// of the keys of one connection. This file only consumes and produces bytes; the owner of the
// socket sends and receives them.
//
// Words: the client is the side that connected, the server the side that listened. A nonce is 32
// random bytes, new for each connection; the transcript is
//   magic "LKS1" | client nonce | server nonce | job | round (u64)      (integers little-endian)
// and mac(label) is HMAC-SHA256 over label | transcript, under the key
//   HKDF-SHA256(secret, salt = job | round, info = "auth").
//
// Messages, of fixed size:
//   1. client to server: magic (4), client nonce (32)
//   2. server to client: server nonce (32), mac("server") (32)
//   3. client to server: mac("client") (32)
// Then the keys of seal.h are HKDF-SHA256(secret, salt = client nonce | server nonce,
// info = job | round | "c2s" or "s2c"), one per direction.
//
// Both proofs cover both nonces, so recorded bytes prove nothing on another connection. The labels
// differ, so the proof of one side is not valid as the proof of the other. A client sends its proof
// only after the server has proven itself. The proofs cover job and round, which are never sent: a
// process of another job, or of a round before a restart, is refused like one with another secret.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/net/secret.h"

namespace lockstep {

/// The values that both sides must share besides the secret.
struct HandshakeContext {
  std::string job;  // at most kMaxJobBytes
  std::uint64_t round = 0;
};
constexpr std::size_t kMaxJobBytes = 64;

using HandshakeNonce = std::array<std::byte, 32>;
/// A new random nonce. Throws SystemError when the kernel's random number generator fails.
[[nodiscard]] HandshakeNonce fresh_nonce();

/// The keys that a server uses in every handshake, derived once.
class HandshakeKeys {
 public:
  /// Throws UsageError when the context's job is too long.
  HandshakeKeys(const Secret& secret, HandshakeContext context);

 private:
  friend class Handshake;

  Secret secret_;
  Secret mac_key_;
  HandshakeContext context_;
};

/// The keys of one connection, named from this side's point of view.
struct SessionKeys {
  Secret sending;
  Secret receiving;
};

class Handshake {
 public:
  /// The client side; its first message is ready in release_output(). Only tests pass a nonce.
  /// Throws UsageError when the context's job is too long.
  [[nodiscard]] static Handshake client(const Secret& secret, HandshakeContext context,
                                        const HandshakeNonce& nonce = fresh_nonce());
  /// The server side. Computes nothing before the first message arrives, since most connections of
  /// a flood never send one.
  [[nodiscard]] static Handshake server(std::shared_ptr<const HandshakeKeys> keys);
  /// The same for one connection.
  [[nodiscard]] static Handshake server(const Secret& secret, HandshakeContext context,
                                        const HandshakeNonce& nonce = fresh_nonce());

  /// Consumes bytes from the other side, in chunks of any size. Returns how many belong to the
  /// handshake; the bytes after them belong to the first frame. Call release_output() afterwards.
  /// Throws UsageError when the other side is refused: close the connection then. Every later call
  /// throws the same.
  [[nodiscard]] std::size_t feed(std::span<const std::byte> bytes);

  /// Returns the bytes to send to the other side now, each byte once; empty when there are none.
  [[nodiscard]] std::vector<std::byte> release_output() noexcept;

  /// The number of bytes that complete the current message; 0 when done.
  [[nodiscard]] std::size_t wanted() const noexcept;
  /// True once the other side has sent a well-formed first message.
  [[nodiscard]] bool has_heard() const noexcept { return state_ != State::hello; }
  /// True when the other side is authenticated. Output may still have to be sent.
  [[nodiscard]] bool done() const noexcept { return state_ == State::done; }

  /// The keys of this connection, each for one Sealer or Opener. Requires done().
  [[nodiscard]] SessionKeys keys() const;

 private:
  enum class Role { client, server };
  enum class State { hello, reply, proof, done, refused };  // the next message, or the end

  Handshake(Role role, std::shared_ptr<const HandshakeKeys> keys);
  void check_magic();
  void receive_hello();
  void receive_reply();
  void receive_proof();
  [[noreturn]] void refuse_stranger();
  [[noreturn]] void refuse(std::string why);

  Role role_;
  State state_;
  std::shared_ptr<const HandshakeKeys> keys_;
  HandshakeNonce client_nonce_{};
  HandshakeNonce server_nonce_{};
  bool nonce_given_ = false;         // the server's; else it is drawn after the client's hello
  std::vector<std::byte> received_;  // the bytes of the current message
  std::vector<std::byte> output_;
  std::string refusal_;
};

}  // namespace lockstep
