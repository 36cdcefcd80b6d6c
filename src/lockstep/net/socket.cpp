#include "lockstep/net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/net/address_internal.h"

namespace lockstep {
namespace {

void set_option(int descriptor, int level, int option, int value) {
  if (::setsockopt(descriptor, level, option, &value, sizeof value) != 0) {
    throw SystemError(fmt::format("cannot set option {} of a socket", option), errno);
  }
}

int domain_of(int descriptor) {
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) {
    throw SystemError("cannot use a descriptor as a socket", errno);
  }
  return domain;
}

// Of the process at the other end, when it connected or began to listen.
ucred credentials_of(int descriptor, const std::string& peer) {
  if (domain_of(descriptor) != AF_UNIX) {
    throw UsageError(fmt::format("the user of {} is unknown: only a Unix socket tells", peer));
  }
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    throw SystemError(fmt::format("cannot get the user of {}", peer), errno);
  }
  return credentials;
}

// A process that ends is noticed through its kernel; a machine that loses power only through
// silence. A stopped process still answers these probes: a debugger loses no connection.
void tune_tcp(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 15);  // seconds of silence, then
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);  // a probe every so many seconds, and
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);    // after this many the peer is lost
  // While sent bytes are not acknowledged there are no probes, and the kernel would try for about
  // 15 minutes. Milliseconds; as long as silence may last.
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

FileDescriptor new_socket(int family, int flags) {
  FileDescriptor descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!descriptor) throw SystemError("cannot make a socket", errno);
  return descriptor;
}

// Waits until one of `events` or an error is there; false when the deadline passes first.
bool wait_until_ready(int descriptor, short events, Deadline deadline) {
  pollfd ready{descriptor, events, 0};
  for (;;) {
    const int count = ::poll(&ready, 1, deadline.poll_milliseconds());
    if (count > 0) return true;
    if (count == 0 && deadline.expired()) return false;
    if (count < 0 && errno != EINTR) throw SystemError("cannot wait for a socket", errno);
  }
}

// 0 when `descriptor` is connected to `address`, else why not.
int connect_to(int descriptor, const Address& address, Deadline deadline) {
  if (::connect(descriptor, address.get(), address.size_bytes) != 0) {
    // An interrupted connect goes on in the kernel.
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_until_ready(descriptor, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    if (error != 0) return error;
  }
  // A connect to a free port of this machine can be given that very port for its own end, and then
  // TCP connects the socket to itself.
  Address self;
  Address peer;
  if (::getsockname(descriptor, self.get(), &self.size_bytes) != 0 ||
      ::getpeername(descriptor, peer.get(), &peer.size_bytes) != 0) {
    return errno;
  }
  return is_same_address(self, peer) ? ECONNREFUSED : 0;
}

timeval as_timeval(Deadline deadline) {
  // Zero would mean without end; a year is as good as the rest of time.
  constexpr int longest = 365 * 24 * 3600;
  const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline.remaining());
  const auto count = std::clamp<std::int64_t>(left.count(), 1, longest * std::int64_t{1'000'000});
  return {static_cast<time_t>(count / 1'000'000), static_cast<suseconds_t>(count % 1'000'000)};
}

}  // namespace

Socket::Socket(FileDescriptor descriptor, std::string peer)
    : descriptor_(std::move(descriptor)), peer_(std::move(peer)) {
  if (domain_of(number()) != AF_UNIX) tune_tcp(number());
  const int flags = ::fcntl(number(), F_GETFL);
  if (flags < 0 || ::fcntl(number(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(number(), F_SETFD, FD_CLOEXEC) != 0) {
    throw SystemError(fmt::format("cannot set up the socket to {}", peer_), errno);
  }
}

Socket Socket::connect(const Endpoint& endpoint, Deadline deadline) {
  const auto addresses = resolve(endpoint, deadline);
  int error = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto num_left = static_cast<std::int64_t>(addresses.size() - i);
    auto descriptor = new_socket(addresses[i].family(), SOCK_NONBLOCK);
    error = connect_to(descriptor.number(), addresses[i],
                       Deadline::after(deadline.remaining() / num_left));
    if (error == 0) return {std::move(descriptor), endpoint.to_string()};
  }
  throw SystemError(fmt::format("cannot connect to {} (does its process run and listen there?)",
                                endpoint.to_string()),
                    error);
}

Socket Socket::connect_unix(std::string_view name, Deadline deadline) {
  const auto address = unix_address(name);
  // A full queue makes a non-blocking connect fail at once, and poll(2) does not tell when it has
  // room; a blocking one waits, as long as sending may take.
  auto descriptor = new_socket(AF_UNIX, 0);
  int result = 0;
  do {
    const auto limit = as_timeval(deadline);
    if (::setsockopt(descriptor.number(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) {
      throw SystemError("cannot limit the time of a connect", errno);
    }
    result = ::connect(descriptor.number(), address.get(), address.size_bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    throw SystemError(fmt::format("cannot connect to the Unix socket {} (does its process run and "
                                  "listen there?)",
                                  in_quotes(name)),
                      errno == EAGAIN ? ETIMEDOUT : errno);
  }
  return {std::move(descriptor), fmt::format("the Unix socket {}", in_quotes(name))};
}

std::pair<Socket, Socket> Socket::pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw SystemError("cannot make a pair of sockets", errno);
  }
  FileDescriptor left(ends[0]);
  FileDescriptor right(ends[1]);
  return {Socket(std::move(left), "the other end of a pair"),
          Socket(std::move(right), "the other end of a pair")};
}

void Socket::send_all(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (const auto count = try_send(bytes)) {
      bytes = bytes.subspan(*count);
    } else {
      wait_for(POLLOUT, "room to send to", deadline);
    }
  }
}

void Socket::receive_exactly(std::span<std::byte> bytes, Deadline deadline) {
  auto rest = bytes;
  while (!rest.empty()) {
    const auto count = try_receive(rest);
    if (!count) {
      wait_readable(deadline);
    } else if (*count == 0) {
      throw SystemError(fmt::format("{} closed the connection after {} of {} bytes", peer_,
                                    bytes.size() - rest.size(), bytes.size()),
                        ECONNRESET);
    } else {
      rest = rest.subspan(*count);
    }
  }
}

std::optional<std::size_t> Socket::try_send(std::span<const std::byte> bytes) {
  for (;;) {
    const auto count = ::send(number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno == EAGAIN) return std::nullopt;
    if (errno != EINTR) throw SystemError(fmt::format("cannot send to {}", peer_), errno);
  }
}

std::optional<std::size_t> Socket::try_receive(std::span<std::byte> bytes) {
  LOCKSTEP_ASSERT(!bytes.empty(), "receiving no bytes looks like the end of the stream");
  for (;;) {
    const auto count = ::recv(number(), bytes.data(), bytes.size(), 0);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno == EAGAIN) return std::nullopt;
    if (errno != EINTR) throw SystemError(fmt::format("cannot receive from {}", peer_), errno);
  }
}

void Socket::wait_readable(Deadline deadline) const { wait_for(POLLIN, "bytes from", deadline); }

uid_t Socket::peer_user() const { return credentials_of(number(), peer_).uid; }

pid_t Socket::peer_process() const { return credentials_of(number(), peer_).pid; }

Endpoint Socket::local_endpoint() const {
  auto endpoint = try_endpoint(local_address(number()));
  if (!endpoint) throw UsageError(fmt::format("a Unix socket to {} has no TCP address", peer_));
  return std::move(*endpoint);
}

bool Socket::peer_lost() const noexcept {
  pollfd ready{number(), POLLRDHUP, 0};
  return ::poll(&ready, 1, 0) > 0;  // errors and hang-ups are reported unasked
}

void Socket::wait_for(short events, std::string_view what_for, Deadline deadline) const {
  if (wait_until_ready(number(), events, deadline)) return;
  throw SystemError(fmt::format("waited for {} {} until the deadline", what_for, peer_), ETIMEDOUT);
}

}  // namespace lockstep
