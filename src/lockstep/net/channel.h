// Messages to and from one process that has proven to belong to the job: a Socket, the handshake,
// and frames. For code that waits; a server of many connections uses handshake.h and seal.h itself.
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

/// One thread may send while another receives. After any throw but a receive's ETIMEDOUT the
/// connection is of no more use.
class Channel {
 public:
  /// Handshakes as the side that connected. Returns when the server has proven itself and was sent
  /// this side's proof; a server that refuses it closes, which the first receive reports.
  /// Throws UsageError when the other side does not know the secret, or is of another job or round;
  /// SystemError when the connection is lost, or with ETIMEDOUT.
  [[nodiscard]] static Channel connect(Socket socket, const Secret& secret,
                                       const HandshakeContext& context, Deadline deadline);
  /// The same for the side that listened. Returns when both have proven themselves.
  [[nodiscard]] static Channel accept(Socket socket, const Secret& secret,
                                      const HandshakeContext& context, Deadline deadline);

  /// Returns when the kernel has taken the whole message. Throws UsageError for one longer than
  /// kMaxFrameBytes (the channel stays of use), SystemError, naming the peer, when it is lost.
  void send(std::span<const std::byte> message, Deadline deadline);

  /// The next message. Throws SystemError, naming the peer: with ECONNRESET when it has closed,
  /// with EBADMSG or EMSGSIZE for a frame that cannot be trusted (seal.h), and with ETIMEDOUT;
  /// after that one it may be called again, nothing is lost.
  [[nodiscard]] std::vector<std::byte> receive(Deadline deadline);

  /// Gives the peer of a Unix socket a descriptor for the same open file. The peer calls
  /// receive_descriptor at the same place of the stream. They throw as Socket's.
  void send_descriptor(int descriptor, Deadline deadline) {
    socket_.send_descriptor(descriptor, deadline);
  }
  [[nodiscard]] FileDescriptor receive_descriptor(Deadline deadline) {
    return socket_.receive_descriptor(deadline);
  }

  /// True once the peer has closed or the connection is gone, even with messages still to be read.
  [[nodiscard]] bool peer_lost() const noexcept { return socket_.peer_lost(); }
  [[nodiscard]] const std::string& peer() const noexcept { return socket_.peer(); }
  /// For poll(2): readable when a message, or its beginning, waits. receive takes no byte past the
  /// message it returns, so none hides here.
  [[nodiscard]] int number() const noexcept { return socket_.number(); }

 private:
  Channel(Socket socket, const SessionKeys& keys);
  static Channel shake_hands(Socket socket, Handshake handshake, Deadline deadline);

  Socket socket_;
  Sealer sealer_;
  Opener opener_;
  bool cut_off_ = false;  // a send ended inside a frame
};

}  // namespace lockstep
