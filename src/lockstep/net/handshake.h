// How two processes prove to each other that they know the job's secret, without saying it, and
// agree on the keys of one connection. Bytes in, bytes out: whoever owns the socket moves them.
//
// Words: the client is who connected, the server who listened. A nonce is 32 random bytes, fresh
// for each connection; the transcript is
//   magic "LKS1" | client nonce | server nonce | job | round (u64)      (integers little-endian)
// and mac(label) is HMAC-SHA256 over label | transcript, under the key
//   HKDF-SHA256(secret, salt = job | round, info = "auth").
//
// Messages, of fixed size:
//   1. client to server: magic (4), client nonce (32)
//   2. server to client: server nonce (32), mac("server") (32)
//   3. client to server: mac("client") (32)
// Then the keys of seal.h are HKDF-SHA256(secret, salt = client nonce | server nonce,
// info = job | round | "c2s" or "s2c"), one for each direction.
//
// Both nonces are under both proofs, so recorded bytes prove nothing on another connection; the
// labels differ, so neither side can be made to answer for the other. A client gives its proof only
// to a server that has given its own. Job and round are under the proofs but never sent: a process
// of another job, or of a round before a restart, is refused like one with another secret.
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

/// What both sides must agree on besides the secret.
struct HandshakeContext {
  std::string job;  // at most kMaxJobBytes
  std::uint64_t round = 0;
};
constexpr std::size_t kMaxJobBytes = 64;

using HandshakeNonce = std::array<std::byte, 32>;
/// Throws SystemError when the kernel has no random numbers.
[[nodiscard]] HandshakeNonce fresh_nonce();

/// What a server needs for every handshake, derived once.
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

/// The keys of one connection, as this side sees them.
struct SessionKeys {
  Secret sending;
  Secret receiving;
};

class Handshake {
 public:
  /// The side that connected; its first message waits in release_output. Only a test gives a nonce.
  /// Throws UsageError when the context's job is too long.
  [[nodiscard]] static Handshake client(const Secret& secret, HandshakeContext context,
                                        const HandshakeNonce& nonce = fresh_nonce());
  /// The side that listened. Costs nothing until the first message has come, since
  /// most connections of a flood never send one.
  [[nodiscard]] static Handshake server(std::shared_ptr<const HandshakeKeys> keys);
  /// The same for one connection.
  [[nodiscard]] static Handshake server(const Secret& secret, HandshakeContext context,
                                        const HandshakeNonce& nonce = fresh_nonce());

  /// Takes bytes from the other side, in any cuts, and no more than belong to the handshake: what
  /// follows the number returned is the first frame's. Call release_output after it.
  /// Throws UsageError when the other side cannot be let in: close the connection then. Every later
  /// call throws the same.
  [[nodiscard]] std::size_t feed(std::span<const std::byte> bytes);

  /// Bytes to send to the other side now; empty when there are none. Each is given once.
  [[nodiscard]] std::vector<std::byte> release_output() noexcept;

  /// How many bytes complete the message that is being received; 0 when done.
  [[nodiscard]] std::size_t wanted() const noexcept;
  /// True once the other side has sent a first message that can be one.
  [[nodiscard]] bool has_heard() const noexcept { return step_ != Step::hello; }
  /// True when the other side has proven itself. Output may still wait to be sent.
  [[nodiscard]] bool done() const noexcept { return step_ == Step::done; }

  /// The keys of this connection, each for one Sealer or Opener; done must be true.
  [[nodiscard]] SessionKeys keys() const;

 private:
  enum class Role { client, server };
  enum class Step { hello, reply, proof, done, refused };  // the message awaited, or the end

  Handshake(Role role, std::shared_ptr<const HandshakeKeys> keys);
  void check_magic();
  void receive_hello();
  void receive_reply();
  void receive_proof();
  [[noreturn]] void refuse_stranger();
  [[noreturn]] void refuse(std::string why);

  Role role_;
  Step step_;
  std::shared_ptr<const HandshakeKeys> keys_;
  HandshakeNonce client_nonce_{};
  HandshakeNonce server_nonce_{};
  bool nonce_given_ = false;         // the server's; else it is drawn when the client's has come
  std::vector<std::byte> received_;  // of the message that is being received
  std::vector<std::byte> output_;
  std::string refusal_;
};

}  // namespace lockstep
