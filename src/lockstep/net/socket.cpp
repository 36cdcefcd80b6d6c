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

// The credentials that the process at the other end had when it connected or listened.
ucred credentials_of(int descriptor, const std::string& peer) {
  if (domain_of(descriptor) != AF_UNIX) {
    throw UsageError(
        fmt::format("the user of {} is not available: only Unix sockets report it", peer));
  }
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    throw SystemError(fmt::format("cannot get the user of {}", peer), errno);
  }
  return credentials;
}

// The kernel of a process that ends closes its connections; a machine that loses power only stops
// answering, which keep-alive probes detect. The kernel answers probes for a stopped process too,
// so a debugger loses no connection.
void tune_tcp(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 15);  // seconds of silence before a probe
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);  // seconds between probes
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);  // unanswered probes until the peer is lost
  // While sent bytes are unacknowledged there are no probes, and the kernel would retransmit for
  // about 15 minutes. The limit in milliseconds is as long as that of the probes.
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

FileDescriptor new_socket(int family, int flags) {
  FileDescriptor descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!descriptor) throw SystemError("cannot create a socket", errno);
  return descriptor;
}

// Waits for one of `events` or an error. Returns false when the deadline passes first.
bool wait_until_ready(int descriptor, short events, Deadline deadline) {
  pollfd ready{descriptor, events, 0};
  for (;;) {
    const int count = ::poll(&ready, 1, deadline.poll_milliseconds());
    if (count > 0) return true;
    if (count == 0 && deadline.expired()) return false;
    if (count < 0 && errno != EINTR) throw SystemError("cannot wait for a socket", errno);
  }
}

// Connects `descriptor` to `address`. Returns 0, or the error number.
int connect_to(int descriptor, const Address& address, Deadline deadline) {
  if (::connect(descriptor, address.get(), address.size_bytes) != 0) {
    // An interrupted connect continues in the kernel.
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_until_ready(descriptor, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    if (error != 0) return error;
  }
  // For a connect to a free port of this machine the kernel can choose the same port as the local
  // one; TCP then connects the socket to itself.
  Address self;
  Address peer;
  if (::getsockname(descriptor, self.get(), &self.size_bytes) != 0 ||
      ::getpeername(descriptor, peer.get(), &peer.size_bytes) != 0) {
    return errno;
  }
  return is_same_address(self, peer) ? ECONNREFUSED : 0;
}

timeval as_timeval(Deadline deadline) {
  // Zero would mean no limit; one year is long enough to be none.
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

Socket Socket::connect(const Endpoint& endpoint, Deadline deadline,
                       const std::function<void(int)>& prepare) {
  const auto addresses = resolve(endpoint, deadline);
  int error = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto num_left = static_cast<std::int64_t>(addresses.size() - i);
    auto descriptor = new_socket(addresses[i].family(), SOCK_NONBLOCK);
    if (prepare) prepare(descriptor.number());
    error = connect_to(descriptor.number(), addresses[i],
                       Deadline::after(deadline.remaining() / num_left));
    if (error == 0) return {std::move(descriptor), endpoint.to_string()};
  }
  throw SystemError(
      fmt::format("cannot connect to {} (is a process listening there?)", endpoint.to_string()),
      error);
}

Socket Socket::connect_unix(std::string_view name, Deadline deadline) {
  const auto address = unix_address(name);
  // If the listener's queue is full, a non-blocking connect fails at once, and poll(2) does not
  // report when there is room. A blocking connect waits, for at most the send timeout.
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
    throw SystemError(fmt::format("cannot connect to the Unix socket {} (is a process listening "
                                  "there?)",
                                  in_quotes(name)),
                      errno == EAGAIN ? ETIMEDOUT : errno);
  }
  return {std::move(descriptor), fmt::format("the Unix socket {}", in_quotes(name))};
}

std::pair<Socket, Socket> Socket::pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw SystemError("cannot create a pair of sockets", errno);
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
  LOCKSTEP_ASSERT(!bytes.empty(),
                  "an empty receive is indistinguishable from the end of the stream");
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
  return ::poll(&ready, 1, 0) > 0;  // poll always reports errors and hang-ups
}

void Socket::wait_for(short events, std::string_view what_for, Deadline deadline) const {
  if (wait_until_ready(number(), events, deadline)) return;
  throw SystemError(fmt::format("waited for {} {} until the deadline", what_for, peer_), ETIMEDOUT);
}

}  // namespace lockstep
