// One connection of the store's server: the handshake, then requests and replies, without blocking.
// Its memory is bounded: while a reply is not yet sent, no further request is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/net/handshake.h"
#include "lockstep/net/seal.h"
#include "lockstep/net/socket.h"

namespace lockstep {

class StoreConnection {
 public:
  StoreConnection(Socket socket, std::shared_ptr<const HandshakeKeys> keys)
      : socket_(std::move(socket)), handshake_(Handshake::server(std::move(keys))) {}

  /// The next complete message of those that have arrived; nullopt when there is none, or when the
  /// peer has closed the connection (see ended()).
  /// Throws UsageError or SystemError when the peer fails authentication or the connection is lost.
  [[nodiscard]] std::optional<std::vector<std::byte>> try_next();

  /// Queues one message. Requires a completed handshake.
  void send(std::span<const std::byte> message);
  /// Sends what the kernel accepts now. Returns true when it accepted at least one byte or the
  /// queue is empty.
  bool flush();

  /// True once the peer has sent its first message of the handshake.
  [[nodiscard]] bool has_spoken() const noexcept { return !handshake_ || handshake_->has_heard(); }
  [[nodiscard]] bool has_output() const noexcept { return !output_.empty(); }
  /// True when the peer has closed and try_next() has returned all its messages.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] int number() const noexcept { return socket_.number(); }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

 private:
  /// Reads available bytes. Returns false when there are none.
  bool receive();

  Socket socket_;
  std::optional<Handshake> handshake_;  // until it is done
  std::optional<Sealer> sealer_;        // from then on
  std::optional<Opener> opener_;
  std::deque<std::vector<std::byte>> output_;
  std::size_t sent_ = 0;  // bytes of the first message in output_
  std::uint64_t bytes_sent_ = 0;
  bool ended_ = false;
};

/// Makes the kernel detect a peer whose machine or link is lost within about 12 s, also while sent
/// bytes are unacknowledged. Does nothing for a Unix socket.
void keep_alive(int socket) noexcept;

}  // namespace lockstep
