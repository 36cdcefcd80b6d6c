// A connected stream of bytes between two processes, by TCP or by a Unix socket of this machine.
//
// Words: the peer is the other end. A Unix socket's name is abstract (unix(7)): it is in no folder,
// disappears with its last process, and is visible in this network namespace only.
//
// Bytes are sent unchanged; channel.h adds authentication and encryption. No call raises SIGPIPE.
// No call waits past its deadline: it throws SystemError with ETIMEDOUT. The error of a lost
// connection names the peer.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/endpoint.h"

namespace lockstep {

class Socket {
 public:
  /// Takes ownership of a connected stream socket and makes it non-blocking; `peer` names the other
  /// end in messages. Throws SystemError.
  Socket(FileDescriptor descriptor, std::string peer);

  /// Connects by TCP to the first address of the endpoint's host that answers, trying each for an
  /// equal part of the time. Returns when connected; the peer is not authenticated yet.
  /// Throws SystemError that names the endpoint: at once when no process listens there, else at the
  /// deadline; UsageError when the host has no address.
  /// `prepare`, if set, is called with the descriptor of each new socket before it connects.
  [[nodiscard]] static Socket connect(const Endpoint& endpoint, Deadline deadline,
                                      const std::function<void(int)>& prepare = {});

  /// Connects to a Unix socket of this machine. Any user may listen on any name: check peer_user().
  /// Throws as connect does, and UsageError for a name that is empty or longer than
  /// kMaxUnixNameBytes.
  [[nodiscard]] static Socket connect_unix(std::string_view name, Deadline deadline);

  /// Two ends of a new Unix stream, for a parent and a child, or for tests. Throws SystemError.
  [[nodiscard]] static std::pair<Socket, Socket> pair();

  /// Returns when the kernel has accepted all of `bytes`. After an exception some of them may have
  /// been sent.
  void send_all(std::span<const std::byte> bytes, Deadline deadline);

  /// Returns when `bytes` is full. Throws SystemError with ECONNRESET when the peer has closed.
  /// Bytes received before an exception are lost.
  void receive_exactly(std::span<std::byte> bytes, Deadline deadline);

  /// Sends without waiting. Returns how many bytes the kernel accepted; nullopt when it accepts
  /// none now. Throws SystemError when the connection is lost.
  [[nodiscard]] std::optional<std::size_t> try_send(std::span<const std::byte> bytes);

  /// Receives without waiting. Returns how many bytes were received; 0 when the peer has closed;
  /// nullopt when none are available now. `bytes` must not be empty. Throws SystemError when the
  /// connection is lost.
  [[nodiscard]] std::optional<std::size_t> try_receive(std::span<std::byte> bytes);

  /// Waits until bytes, the end of the stream or an error can be received.
  void wait_readable(Deadline deadline) const;

  /// Sends the peer of a Unix socket a descriptor for the same open file, with one byte of data.
  /// The peer calls receive_descriptor() at the same position in the stream.
  void send_descriptor(int descriptor, Deadline deadline);

  /// Receives a descriptor. Throws SystemError with EPROTO when the next data is not exactly one
  /// descriptor.
  [[nodiscard]] FileDescriptor receive_descriptor(Deadline deadline);

  /// The user of the process that connected or listened, as recorded by the kernel.
  /// Throws UsageError for a TCP socket, whose peer the kernel does not know.
  [[nodiscard]] uid_t peer_user() const;
  /// The id of that process in this process's pid namespace.
  [[nodiscard]] pid_t peer_process() const;

  /// The local address of a TCP connection: one that the peer's machine can reach.
  /// Throws UsageError for a Unix socket.
  [[nodiscard]] Endpoint local_endpoint() const;

  /// True once the peer has closed or the connection is lost, even if unread bytes remain.
  [[nodiscard]] bool peer_lost() const noexcept;

  /// The name of the other end in messages, such as "10.0.0.2:29500".
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  /// The descriptor, for poll(2) or epoll(7).
  [[nodiscard]] int number() const noexcept { return descriptor_.number(); }

 private:
  void wait_for(short events, std::string_view what_for, Deadline deadline) const;

  FileDescriptor descriptor_;
  std::string peer_;
};

/// The maximum length of an abstract name: sun_path without its leading zero byte.
constexpr std::size_t kMaxUnixNameBytes = 107;

}  // namespace lockstep
