#include "lockstep/net/listener.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <random>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/net/address_internal.h"
#include "lockstep/net/handshake.h"

namespace lockstep {
namespace {

// A listening socket at `address`, or an empty one with errno set.
FileDescriptor try_listen(const Address& address) {
  FileDescriptor descriptor(
      ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Allows a port to be reused while its last connections are in TIME_WAIT.
  const int yes = 1;
  const bool listens =
      descriptor &&
      ::setsockopt(descriptor.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      ::bind(descriptor.number(), address.get(), address.size_bytes) == 0 &&
      ::listen(descriptor.number(), SOMAXCONN) == 0;
  if (listens) return descriptor;
  const int error = errno;
  descriptor.reset();
  errno = error;
  return {};
}

[[noreturn]] void refuse_wildcard(const std::string& host) {
  throw UsageError(
      fmt::format("host {} means every address of this machine, so every network could connect: "
                  "give the one address that the job's processes use, such as 127.0.0.1 for this "
                  "machine only",
                  in_quotes(host)));
}

// accept(2): the connection failed while it was pending; the listener is not affected.
bool is_of_connection(int error) {
  constexpr std::array of_connection{ECONNABORTED, EINTR,       ENETDOWN, EPROTO,
                                     ENOPROTOOPT,  EHOSTDOWN,   ENONET,   EHOSTUNREACH,
                                     EOPNOTSUPP,   ENETUNREACH, EPERM};
  return std::find(of_connection.begin(), of_connection.end(), error) != of_connection.end();
}

std::string name_of_client(const Address& address, int descriptor, const std::string& where) {
  if (const auto endpoint = try_endpoint(address)) return endpoint->to_string();
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return fmt::format("a client of {}", where);
  }
  return fmt::format("process {} at {}", credentials.pid, where);
}

}  // namespace

Listener Listener::tcp(const std::string& host, std::uint16_t port) {
  if (host.empty()) refuse_wildcard(host);
  // A machine usually resolves its own names locally; otherwise its name service has this long.
  const auto addresses = resolve({host, port}, Deadline::after(std::chrono::seconds(30)));
  for (const auto& address : addresses) {
    if (is_wildcard(address)) refuse_wildcard(host);
  }
  int error = 0;
  for (const auto& address : addresses) {
    auto descriptor = try_listen(address);
    error = errno;
    if (!descriptor) continue;
    const auto endpoint = try_endpoint(local_address(descriptor.number()));
    return {std::move(descriptor), endpoint->to_string()};
  }
  throw SystemError(fmt::format("cannot listen on {}", Endpoint{host, port}.to_string()), error);
}

Listener Listener::tcp(const std::string& host, const PortRange& ports) {
  const auto count = static_cast<unsigned>(ports.last - ports.first) + 1;
  const auto begin = static_cast<unsigned>(std::random_device{}());
  for (unsigned i = 0; i < count; ++i) {
    try {
      return tcp(host, static_cast<std::uint16_t>(ports.first + (begin + i) % count));
    } catch (const SystemError& error) {
      if (error.error_number() != EADDRINUSE) throw;
    }
  }
  throw SystemError(fmt::format("cannot listen on {}: all ports from {} to {} are in use", host,
                                ports.first, ports.last),
                    EADDRINUSE);
}

Listener Listener::unix_socket(std::string_view name) {
  auto descriptor = try_listen(unix_address(name));
  if (!descriptor) {
    throw SystemError(fmt::format("cannot listen on the Unix socket {}", in_quotes(name)), errno);
  }
  return {std::move(descriptor), fmt::format("the Unix socket {}", in_quotes(name)),
          std::string(name)};
}

Listener Listener::unix_random(std::string_view prefix) {
  std::string name(prefix);
  const auto nonce = fresh_nonce();
  for (const auto byte : std::span(nonce).first(16)) {
    name += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return unix_socket(name);
}

std::optional<Socket> Listener::try_accept() {
  for (;;) {
    Address address;
    FileDescriptor descriptor(
        ::accept4(number(), address.get(), &address.size_bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (descriptor) {
      auto name = name_of_client(address, descriptor.number(), where_);
      return Socket(std::move(descriptor), std::move(name));
    }
    if (errno == EAGAIN) return std::nullopt;
    if (!is_of_connection(errno)) {
      throw SystemError(fmt::format("cannot accept a connection at {}", where_), errno);
    }
  }
}

Socket Listener::accept(Deadline deadline) {
  for (;;) {
    if (auto socket = try_accept()) return std::move(*socket);
    pollfd ready{number(), POLLIN, 0};
    const int count = ::poll(&ready, 1, deadline.poll_milliseconds());
    if (count < 0 && errno != EINTR) throw SystemError("cannot wait for a connection", errno);
    if (count == 0 && deadline.expired()) {
      throw SystemError(fmt::format("waited for a connection to {} until the deadline", where_),
                        ETIMEDOUT);
    }
  }
}

Endpoint Listener::endpoint() const {
  auto endpoint = try_endpoint(local_address(number()));
  if (!endpoint) throw UsageError(fmt::format("{} has no TCP address", where_));
  return std::move(*endpoint);
}

std::string Listener::unix_name() const {
  if (unix_name_.empty()) throw UsageError(fmt::format("{} is not a Unix socket", where_));
  return unix_name_;
}

}  // namespace lockstep
