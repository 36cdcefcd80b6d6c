// Where others connect to: a TCP port of one address, or a Unix socket of this machine. It never
// listens on all addresses of a machine: who wants others to reach it says by which.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/socket.h"

namespace lockstep {

class Listener {
 public:
  /// Listens by TCP on `host`, a name or address of this machine; port 0 takes a free one.
  /// Throws UsageError for an address that means all of them ("", 0.0.0.0, ::), SystemError when
  /// the port is taken or the address is not this machine's.
  [[nodiscard]] static Listener tcp(const std::string& host, std::uint16_t port = 0);

  /// Listens on the abstract Unix socket `name` (socket.h), which any user of this machine can
  /// reach: check peer_user of what is accepted.
  /// Throws UsageError for a name that is empty or too long, SystemError when it is taken.
  [[nodiscard]] static Listener unix_socket(std::string_view name);

  /// The same under a new name, `prefix` and 32 random hexadecimal digits: nobody else can have
  /// taken it, and nobody who was not told can guess it.
  [[nodiscard]] static Listener unix_random(std::string_view prefix);

  /// The next connection that waits to be taken; nothing when none does. Connections that ended
  /// while they waited are passed over. Throws SystemError, as when descriptors have run out
  /// (EMFILE): the connection still waits then, so back off before the next call.
  [[nodiscard]] std::optional<Socket> try_accept();

  /// Waits for the next connection. Throws SystemError, with ETIMEDOUT at the deadline.
  [[nodiscard]] Socket accept(Deadline deadline);

  /// The address and port that others connect to. Throws UsageError for a Unix socket.
  [[nodiscard]] Endpoint endpoint() const;

  /// The name that others connect to. Throws UsageError for TCP.
  [[nodiscard]] std::string unix_name() const;

  /// For messages: "127.0.0.1:29500", or "the Unix socket job-7".
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  /// For poll(2) and its kin: readable when a connection waits.
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
