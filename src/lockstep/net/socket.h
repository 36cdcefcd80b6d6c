// A connected stream of bytes between two processes, by TCP or by a Unix socket of this machine.
//
// Words: the peer is the other end; a Unix socket's name is abstract (unix(7)): it lies in no
// folder, goes away with its last process, and is seen by this network namespace alone.
//
// Bytes are sent as they are: channel.h adds the proof that the peer belongs to the job, and
// encryption. No call raises SIGPIPE. No call waits past its deadline: one that would throws
// SystemError with ETIMEDOUT, and the error of a connection that is gone names the peer.
#pragma once

#include <sys/types.h>

#include <cstddef>
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
  /// Takes over a connected stream socket and makes it non-blocking; `peer` is the other end's name
  /// in messages. Throws SystemError.
  Socket(FileDescriptor descriptor, std::string peer);

  /// Connects by TCP to the first address of the endpoint's host that answers, trying each for an
  /// equal share of the time. Returns when connected; nobody has proven anything yet.
  /// Throws SystemError that names the endpoint: at once when nobody listens there, or at the
  /// deadline; UsageError when the host has no address.
  [[nodiscard]] static Socket connect(const Endpoint& endpoint, Deadline deadline);

  /// Connects to a Unix socket of this machine. Anyone may listen under any name: check peer_user.
  /// Throws as connect does, and UsageError for a name that is empty or longer than
  /// kMaxUnixNameBytes.
  [[nodiscard]] static Socket connect_unix(std::string_view name, Deadline deadline);

  /// Two ends of a new Unix stream, for a parent and a child, or for tests. Throws SystemError.
  [[nodiscard]] static std::pair<Socket, Socket> pair();

  /// Returns when the kernel has taken all of `bytes`. After a throw some of them may be sent.
  void send_all(std::span<const std::byte> bytes, Deadline deadline);

  /// Returns when `bytes` is full. Throws SystemError with ECONNRESET when the peer has closed.
  /// What had arrived before a throw is lost.
  void receive_exactly(std::span<std::byte> bytes, Deadline deadline);

  /// Sends what the kernel takes without waiting: how many bytes, nothing when it takes none now.
  /// Throws SystemError when the connection is gone.
  [[nodiscard]] std::optional<std::size_t> try_send(std::span<const std::byte> bytes);

  /// Receives what is there without waiting: how many bytes, 0 when the peer has closed, nothing
  /// when none are there now. `bytes` is not empty. Throws SystemError when the connection is
  /// gone.
  [[nodiscard]] std::optional<std::size_t> try_receive(std::span<std::byte> bytes);

  /// Returns when bytes, the end of the stream or an error can be received.
  void wait_readable(Deadline deadline) const;

  /// Gives the peer of a Unix socket a descriptor for the same open file, with one byte. The peer
  /// calls receive_descriptor at the same place of the stream.
  void send_descriptor(int descriptor, Deadline deadline);

  /// Throws SystemError with EPROTO when what comes next is not exactly one descriptor.
  [[nodiscard]] FileDescriptor receive_descriptor(Deadline deadline);

  /// The user who connected, or who began to listen, as the kernel vouches for it.
  /// Throws UsageError for a TCP socket, whose peer the kernel does not know.
  [[nodiscard]] uid_t peer_user() const;
  /// Its process number, as this process's namespace has it.
  [[nodiscard]] pid_t peer_process() const;

  /// The address this end of a TCP connection uses: one the peer's machine can reach.
  /// Throws UsageError for a Unix socket.
  [[nodiscard]] Endpoint local_endpoint() const;

  /// True once the peer has closed or the connection is gone, even with bytes still to be read.
  [[nodiscard]] bool peer_lost() const noexcept;

  /// The other end's name in messages, such as "10.0.0.2:29500".
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  /// For poll(2) and its kin.
  [[nodiscard]] int number() const noexcept { return descriptor_.number(); }

 private:
  void wait_for(short events, std::string_view what_for, Deadline deadline) const;

  FileDescriptor descriptor_;
  std::string peer_;
};

/// What an abstract name may have: sun_path less its leading zero byte.
constexpr std::size_t kMaxUnixNameBytes = 107;

}  // namespace lockstep
