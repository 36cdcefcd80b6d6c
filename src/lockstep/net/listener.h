// A listening socket: a TCP port of one address, or a Unix socket of this machine. It never listens
// on all addresses of a machine; the caller names the address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/port_range.h"
#include "lockstep/net/socket.h"

namespace lockstep {

class Listener {
 public:
  /// Listens by TCP on `host`, a name or address of this machine; port 0 selects a free port.
  /// Throws UsageError for a wildcard address ("", 0.0.0.0, ::); SystemError when the port is in
  /// use or the address does not belong to this machine.
  [[nodiscard]] static Listener tcp(const std::string& host, std::uint16_t port = 0);

  /// The same on a free port of the range, which is tried from a random one on: two jobs that start
  /// together seldom try the same. Throws SystemError with EADDRINUSE if no port of it is free.
  [[nodiscard]] static Listener tcp(const std::string& host, const PortRange& ports);

  /// Listens on the abstract Unix socket `name` (socket.h). Every user of this machine can connect:
  /// check peer_user() of accepted connections.
  /// Throws UsageError for a name that is empty or too long; SystemError when it is in use.
  [[nodiscard]] static Listener unix_socket(std::string_view name);

  /// The same with a new name: `prefix` and 32 random hexadecimal digits. The name is unique, and
  /// other processes cannot guess it.
  [[nodiscard]] static Listener unix_random(std::string_view prefix);

  /// Accepts the next pending connection; nullopt when there is none. Connections that ended while
  /// they were pending are skipped. Throws SystemError, for example with EMFILE when descriptors
  /// run out: the connection is still pending then, so back off before the next call.
  [[nodiscard]] std::optional<Socket> try_accept();

  /// Waits for the next connection. Throws SystemError, with ETIMEDOUT at the deadline.
  [[nodiscard]] Socket accept(Deadline deadline);

  /// The address and port to connect to. Throws UsageError for a Unix socket.
  [[nodiscard]] Endpoint endpoint() const;

  /// The name to connect to. Throws UsageError for TCP.
  [[nodiscard]] std::string unix_name() const;

  /// For messages: "127.0.0.1:29500", or "the Unix socket job-7".
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  /// The descriptor, for poll(2) or epoll(7): readable when a connection is pending.
  [[nodiscard]] int number() const noexcept { return descriptor_.number(); }

 private:
  Listener(FileDescriptor descriptor, std::string where, std::string unix_name = {})
      : descriptor_(std::move(descriptor)),
        where_(std::move(where)),
        unix_name_(std::move(unix_name)) {}

  FileDescriptor descriptor_;
  std::string where_;
  std::string unix_name_;  // empty for TCP
};

}  // namespace lockstep
