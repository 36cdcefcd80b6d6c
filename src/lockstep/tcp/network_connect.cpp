// How two processes are connected: the client's side, which blocks, and the server's side, which
// does not.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tcp/congestion_internal.h"
#include "lockstep/tcp/network_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostNewcomers = 256;
constexpr std::chrono::seconds kHandshakeTimeout{10};
constexpr std::chrono::milliseconds kSlice{50};  // between two calls of `watch`
// The kernel tries for more than two minutes where no machine answers.
constexpr std::chrono::seconds kConnectTimeout{30};
// A message and the number of its end.
constexpr std::size_t kMaxSealedBytes = kMaxMessageBytes + 64;

// The kernel gives up a connection whose bytes are not acknowledged for this long: without the
// limit, after about 15 minutes.
void set_timeout(int descriptor, std::chrono::milliseconds limit) {
  const auto value = static_cast<unsigned>(limit.count());
  (void)::setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, sizeof(value));
}

std::string encryption_differs(int encrypting, int other) {
  return fmt::format(
      "rank {} encrypts data, rank {} does not: give --encrypt (LOCKSTEP_ENCRYPT=1) to all ranks, "
      "or to none",
      encrypting, other);
}

// Returns the next frame of a new connection, which has no others yet.
std::vector<std::byte> receive_frame(Link::Connection& connection, Deadline deadline) {
  while (true) {
    if (auto frame = connection.opener.try_next()) return std::move(*frame);
    std::array<std::byte, 64> buffer;
    const auto wanted =
        std::span(buffer).first(std::min(connection.opener.wanted(), buffer.size()));
    connection.socket.receive_exactly(wanted, deadline);
    connection.opener.feed(wanted);
  }
}

}  // namespace

HandshakeContext TcpNetwork::context(const std::string& token) const {
  return {.job = "tcp " + token, .round = 0};
}

Hello TcpNetwork::hello() const {
  return {.rank = rank_, .encrypts = protection_ == DataProtection::encrypted};
}

// The kernel chooses the interface by the address of the peer. Where several belong to one network,
// it also needs the address of this end.
void TcpNetwork::prepare(int descriptor, int stripe) const {
  (void)set_congestion_control(descriptor);
  if (listeners_.size() == 1) return;
  const auto& own = listeners_[static_cast<std::size_t>(stripe) % listeners_.size()];
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::getsockname(own.number(), generic, &size) != 0) return;
  if (address.ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(&address)->sin_port = 0;
  if (address.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = 0;
  (void)::bind(descriptor, generic, size);  // another IP version than the peer's: by the kernel
}

void TcpNetwork::connect(int peer, const RankAddress& address, Deadline deadline,
                         const Watch& watch) {
  const auto is_up = [&] {
    const Lock lock(mutex_);
    const auto& link = peer_of(peer).link;
    return link->is_up() || link->is_lost();
  };
  if (peer < rank_ && begin_connecting(peer)) {
    try {
      connect_to(peer, address, std::min(deadline, Deadline::after(kConnectTimeout)));
    } catch (const UsageError&) {
      stop_connecting(peer);
      throw;
    } catch (const SystemError& error) {
      stop_connecting(peer);
      throw SystemError(
          fmt::format(
              "rank {} at {} cannot connect to rank {} at {} ({}): if that rank still runs, "
              "check that both addresses belong to one network (--interface chooses it), "
              "and that no firewall blocks the port (--ports bounds it)",
              rank_, listeners_.front().endpoint().host, peer,
              address.endpoints.front().to_string(), error.what()),
          error.error_number());
    }
  }
  while (!is_up()) {
    if (deadline.expired()) {
      throw SystemError(
          fmt::format("rank {} at {} has not connected to rank {} at {}", peer,
                      address.endpoints.front().host, rank_, listeners_.front().where()),
          ETIMEDOUT);
    }
    wait(std::min(deadline, Deadline::after(kSlice)));
    if (watch) watch();
  }
}

bool TcpNetwork::begin_connecting(int peer) {
  const Lock lock(mutex_);
  auto& other = peer_of(peer);
  return other.link->descriptor(0) < 0 && !std::exchange(other.is_connecting, true);
}

// A later group may try again.
void TcpNetwork::stop_connecting(int peer) {
  const Lock lock(mutex_);
  peer_of(peer).is_connecting = false;
}

void TcpNetwork::connect_to(int peer, const RankAddress& address, Deadline deadline,
                            const std::function<void(int descriptor)>& opened) {
  const auto most = std::max(
      {static_cast<std::size_t>(num_stripes_), listeners_.size(), address.endpoints.size()});
  auto own = hello();
  own.num_stripes = static_cast<int>(std::min(most, std::size_t{kMaxStripes}));
  const auto open = [&](int stripe) {
    const auto& to = address.endpoints[static_cast<std::size_t>(stripe) % address.endpoints.size()];
    auto socket = Socket::connect(to, deadline, [&](int descriptor) {
      prepare(descriptor, stripe);
      if (opened) opened(descriptor);
    });
    return shake_hands(std::move(socket), address.token, own, deadline);
  };
  auto messages = open(0);
  const auto theirs = try_decode_hello(receive_frame(messages, deadline));
  if (!theirs || theirs->rank != peer) {
    throw SystemError(
        fmt::format("{} sent an invalid hello", address.endpoints.front().to_string()), EPROTO);
  }
  if (theirs->encrypts != own.encrypts) {
    throw UsageError(
        encryption_differs(theirs->encrypts ? peer : rank_, theirs->encrypts ? rank_ : peer));
  }
  const auto attach_own = [&](Link::Connection connection) {
    auto as_theirs = own;  // which connection this is; whose it is
    as_theirs.rank = peer;
    const Lock lock(mutex_);
    attach(std::move(connection), as_theirs, Opened::here);
  };
  attach_own(std::move(messages));
  own.kind = ConnectionKind::data;
  for (; own.stripe < own.num_stripes; ++own.stripe) attach_own(open(own.stripe));
}

// The client's side. Blocking: the server's side answers without its callers.
Link::Connection TcpNetwork::shake_hands(Socket socket, const std::string& token,
                                         const Hello& hello, Deadline deadline) const {
  auto handshake = Handshake::client(secret_, context(token));
  socket.send_all(handshake.release_output(), deadline);
  while (!handshake.done()) {
    std::array<std::byte, 64> buffer;
    const auto wanted = std::span(buffer).first(std::min(handshake.wanted(), buffer.size()));
    socket.receive_exactly(wanted, deadline);
    (void)handshake.feed(wanted);
    socket.send_all(handshake.release_output(), deadline);
  }
  const auto keys = handshake.keys();
  auto peer = socket.peer();
  Link::Connection connection{std::move(socket), Sealer(keys.sending, kMaxSealedBytes),
                              Opener(keys.receiving, kMaxSealedBytes, std::move(peer))};
  connection.socket.send_all(connection.sealer.seal(encode(hello)), deadline);
  return connection;
}

void TcpNetwork::accept_newcomers(Listener& listener) {
  while (newcomers_.size() < kMostNewcomers) {
    std::optional<Socket> socket;
    try {
      socket = listener.try_accept();
    } catch (const SystemError&) {
      return;  // out of descriptors: the connection stays pending
    }
    if (!socket) return;
    const auto descriptor = socket->number();
    newcomers_.push_front({std::move(*socket), Handshake::server(keys_), std::nullopt, std::nullopt,
                           Deadline::after(kHandshakeTimeout)});
    sources_[descriptor] = {nullptr, 0, newcomers_.begin()};
    watch_descriptor(descriptor, EPOLLIN, /*is_new=*/true);
  }
}

// Reads no byte beyond the hello: the rest belongs to the link.
void TcpNetwork::handle_newcomer(std::list<Newcomer>::iterator newcomer) {
  auto& [socket, handshake, sealer, opener, deadline] = *newcomer;
  try {
    std::array<std::byte, 64> buffer;
    while (true) {
      if (opener) {
        if (const auto message = opener->try_next()) {
          const auto hello = try_decode_hello(*message);
          if (!hello || hello->rank == rank_) return drop(newcomer);
          sources_.erase(socket.number());
          (void)::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, socket.number(), nullptr);
          attach({std::move(socket), std::move(*sealer), std::move(*opener)}, *hello,
                 Opened::there);
          newcomers_.erase(newcomer);
          return;
        }
      }
      const auto wanted = std::span(buffer).first(
          std::min(opener ? opener->wanted() : handshake.wanted(), buffer.size()));
      const auto count = socket.try_receive(wanted);
      if (!count) return;
      if (*count == 0) return drop(newcomer);
      if (opener) {
        opener->feed(wanted.first(*count));
        continue;
      }
      (void)handshake.feed(wanted.first(*count));
      const auto output = handshake.release_output();
      if (!output.empty() && socket.try_send(output) != output.size()) return drop(newcomer);
      if (!handshake.done()) continue;
      const auto keys = handshake.keys();
      sealer.emplace(keys.sending, kMaxSealedBytes);
      opener.emplace(keys.receiving, kMaxSealedBytes, socket.peer());
    }
  } catch (const Error&) {
    drop(newcomer);  // a process without the secret, or one that has ended
  }
}

void TcpNetwork::drop(std::list<Newcomer>::iterator newcomer) {
  sources_.erase(newcomer->socket.number());
  newcomers_.erase(newcomer);
}

void TcpNetwork::attach(Link::Connection connection, const Hello& theirs, Opened opened) {
  const int rank = theirs.rank;
  auto& peer = peer_of(rank);
  const int channel = Link::channel_of(theirs);
  if (peer.link->is_lost() || peer.link->descriptor(channel) >= 0) return;  // one link per process
  // Both processes may begin to connect at the same time. Then the one with the higher rank does.
  if (opened == Opened::there && channel == 0 && rank < rank_ && peer.is_connecting) return;
  if (channel == 0 && opened == Opened::there) {
    // The client waits for the answer; the buffer of a new socket has room for it.
    const auto answer = connection.sealer.seal(encode(hello()));
    if (connection.socket.try_send(answer) != answer.size()) return;
  }
  set_timeout(connection.socket.number(), heartbeat_);
  settle_congestion_control(connection.socket.number(), congestion_control_);
  if (!peer.link->attach(std::move(connection), theirs)) return;
  peer.opened = opened;
  most_stripes_ = std::max(most_stripes_, theirs.num_stripes);
  add_threads();
  if (opened == Opened::there && theirs.encrypts != hello().encrypts) {
    return peer.link->lose(
        encryption_differs(theirs.encrypts ? rank : rank_, theirs.encrypts ? rank_ : rank));
  }
  const auto descriptor = peer.link->descriptor(channel);
  sources_[descriptor] = {&peer, channel, {}};
  peer.watched[channel] = EPOLLIN;
  watch_descriptor(descriptor, EPOLLIN, /*is_new=*/true);
  peer.link->flush();  // what has waited for the connection
  update(peer);
}

}  // namespace lockstep
