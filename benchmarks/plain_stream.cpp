#include "plain_stream.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr const char* kPort = "29999";

struct Found {
  explicit Found(const std::string& address) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    if (::getaddrinfo(address.c_str(), kPort, &hints, &first) != 0) {
      throw SystemError("cannot resolve " + address, 0);
    }
  }
  Found(const Found&) = delete;
  Found& operator=(const Found&) = delete;
  ~Found() { ::freeaddrinfo(first); }
  [[nodiscard]] FileDescriptor socket() const {
    return FileDescriptor(::socket(first->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }

  addrinfo* first = nullptr;
};

}  // namespace

FileDescriptor connect_plainly(const World& world) {
  const Found found(world.address_of(0));
  if (world.rank() == 0) {
    const auto listener = found.socket();
    const int on = 1;
    (void)::setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (::bind(listener.number(), found.first->ai_addr, found.first->ai_addrlen) != 0 ||
        ::listen(listener.number(), 1) != 0) {
      throw SystemError("cannot listen", errno);
    }
    return FileDescriptor(::accept(listener.number(), nullptr, nullptr));
  }
  while (true) {
    auto socket = found.socket();
    if (::connect(socket.number(), found.first->ai_addr, found.first->ai_addrlen) == 0) {
      return socket;
    }
    ::usleep(10'000);
  }
}

void move_some(int socket, PlainExchange& exchange, std::size_t most) {
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    if (auto& out = exchange.out; !out.empty()) {
      const auto count =
          ::send(socket, out.data(), std::min(out.size(), most), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count > 0) out = out.subspan(static_cast<std::size_t>(count));
      has_moved = count > 0;
    }
    if (auto& in = exchange.in; !in.empty()) {
      const auto count = ::recv(socket, in.data(), std::min(in.size(), most), MSG_DONTWAIT);
      if (count == 0) throw SystemError("the other rank has closed the stream", 0);
      if (count > 0) in = in.subspan(static_cast<std::size_t>(count));
      has_moved = has_moved || count > 0;
    }
  }
}

void wait_to_move(int socket, const PlainExchange& exchange) {
  pollfd wanted{socket, 0, 0};
  if (!exchange.in.empty()) wanted.events |= POLLIN;
  if (!exchange.out.empty()) wanted.events |= POLLOUT;
  (void)::poll(&wanted, 1, 100);
}

}  // namespace lockstep
