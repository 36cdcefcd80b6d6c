// One connection as the store's server sees it: the handshake, then requests in and replies out,
// never waiting. Its memory is bounded: while a reply waits to be sent, no further request is
// taken.
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

  /// The next whole message, from what was received before or is there to be received now; nothing
  /// when none is, or when the peer has ended the connection (see ended).
  /// Throws UsageError or SystemError when the peer cannot be trusted or the connection is gone.
  [[nodiscard]] std::optional<std::vector<std::byte>> try_next();

  /// Queues one message; only once the handshake is done.
  void send(std::span<const std::byte> message);
  /// Sends what the kernel takes now; true when that was at least one byte, or nothing waits.
  bool flush();

  /// The peer has sent its first message of the handshake.
  [[nodiscard]] bool has_spoken() const noexcept { return !handshake_ || handshake_->has_heard(); }
  [[nodiscard]] bool has_output() const noexcept { return !output_.empty(); }
  /// The peer has closed, and everything it had sent was given out.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] int number() const noexcept { return socket_.number(); }

 private:
  /// False when nothing is there.
  bool receive();

  Socket socket_;
  std::optional<Handshake> handshake_;  // until it is done
  std::optional<Sealer> sealer_;        // from then on
  std::optional<Opener> opener_;
  std::deque<std::vector<std::byte>> output_;
  std::size_t sent_ = 0;  // of the first in output_
  bool ended_ = false;
};

/// Lets the kernel notice a peer whose machine or link is gone within about 12 s, also while bytes
/// are on their way to it. Does nothing for a Unix socket.
void keep_alive(int socket) noexcept;

}  // namespace lockstep
