// Messages to and from one authenticated process of the job: a Socket, the handshake, and frames.
// For blocking code; a server of many connections uses handshake.h and seal.h directly.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/seal.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/socket.h"

namespace lockstep {

/// One thread may send while another receives. After an exception the connection is unusable,
/// except after a receive that threw ETIMEDOUT and a send that threw UsageError.
class Channel {
 public:
  /// Runs the handshake on the side that connected. Returns when the server is authenticated and
  /// this side's proof is sent. A server that rejects the proof closes the connection, which the
  /// first receive() reports.
  /// Throws UsageError when the other side does not know the secret, or belongs to another job or
  /// round; SystemError when the connection is lost, with ETIMEDOUT at the deadline.
  [[nodiscard]] static Channel connect(Socket socket, const Secret& secret,
                                       const HandshakeContext& context, Deadline deadline);
  /// The same on the side that listened. Returns when both sides are authenticated.
  [[nodiscard]] static Channel accept(Socket socket, const Secret& secret,
                                      const HandshakeContext& context, Deadline deadline);

  /// Sends a message. Returns when the kernel has accepted all of it.
  /// Throws UsageError for a message longer than kMaxFrameBytes (the channel stays usable);
  /// SystemError, naming the peer, when the connection is lost.
  void send(std::span<const std::byte> message, Deadline deadline);

  /// Returns the next message.
  /// Throws SystemError, naming the peer: with ECONNRESET when it has closed the connection, with
  /// EBADMSG or EMSGSIZE for a frame that fails authentication or is too long (seal.h), and with
  /// ETIMEDOUT. After ETIMEDOUT the caller may call it again; no data is lost.
  [[nodiscard]] std::vector<std::byte> receive(Deadline deadline);

  /// Sends the peer of a Unix socket a descriptor for the same open file. The peer calls
  /// receive_descriptor at the same position in the stream. Both throw as those of Socket.
  void send_descriptor(int descriptor, Deadline deadline) {
    socket_.send_descriptor(descriptor, deadline);
  }
  [[nodiscard]] FileDescriptor receive_descriptor(Deadline deadline) {
    return socket_.receive_descriptor(deadline);
  }

  /// True once the peer has closed or the connection is lost, even if unread messages remain.
  [[nodiscard]] bool peer_lost() const noexcept { return socket_.peer_lost(); }
  [[nodiscard]] const std::string& peer() const noexcept { return socket_.peer(); }
  /// The descriptor, for poll(2): readable when a message or a part of one has arrived. receive()
  /// reads no byte beyond the message that it returns, so no message is buffered here.
  [[nodiscard]] int number() const noexcept { return socket_.number(); }

 private:
  Channel(Socket socket, const SessionKeys& keys);
  static Channel shake_hands(Socket socket, Handshake handshake, Deadline deadline);

  Socket socket_;
  Sealer sealer_;
  Opener opener_;
  bool cut_off_ = false;  // a send failed in the middle of a frame
};

}  // namespace lockstep
