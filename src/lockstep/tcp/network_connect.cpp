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

Hello TcpNetwork::hello(ConnectionKind kind) const {
  return {kind, rank_, ProcessIdentity::of(::getpid()), protection_ == DataProtection::encrypted};
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
              rank_, listener_.endpoint().host, peer, address.endpoint.to_string(), error.what()),
          error.error_number());
    }
  }
  while (!is_up()) {
    if (deadline.expired()) {
      throw SystemError(fmt::format("rank {} at {} has not connected to rank {} at {}", peer,
                                    address.endpoint.host, rank_, listener_.where()),
                        ETIMEDOUT);
    }
    wait(std::min(deadline, Deadline::after(kSlice)));
    if (watch) watch();
  }
}

bool TcpNetwork::begin_connecting(int peer) {
  const Lock lock(mutex_);
  return !std::exchange(peer_of(peer).is_connecting, true);
}

// A later group may try again.
void TcpNetwork::stop_connecting(int peer) {
  const Lock lock(mutex_);
  peer_of(peer).is_connecting = false;
}

void TcpNetwork::connect_to(int peer, const RankAddress& address, Deadline deadline) {
  ProcessIdentity process;
  for (const auto kind : {ConnectionKind::messages, ConnectionKind::data}) {
    auto connection =
        shake_hands(Socket::connect(address.endpoint, deadline, set_congestion_control),
                    address.token, kind, deadline);
    if (kind == ConnectionKind::messages) {
      const auto theirs = try_decode_hello(receive_frame(connection, deadline));
      if (!theirs || theirs->rank != peer) {
        throw SystemError(fmt::format("{} sent an invalid hello", address.endpoint.to_string()),
                          EPROTO);
      }
      if (theirs->encrypts != hello(kind).encrypts) {
        throw UsageError(
            encryption_differs(theirs->encrypts ? peer : rank_, theirs->encrypts ? rank_ : peer));
      }
      process = theirs->process;
    }
    const Lock lock(mutex_);
    attach(peer, kind, std::move(connection), {kind, peer, process});
  }
}

// The client's side. Blocking: the server's side answers without its callers.
Link::Connection TcpNetwork::shake_hands(Socket socket, const std::string& token,
                                         ConnectionKind kind, Deadline deadline) const {
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
  connection.socket.send_all(connection.sealer.seal(encode(hello(kind))), deadline);
  return connection;
}

void TcpNetwork::accept_newcomers() {
  while (newcomers_.size() < kMostNewcomers) {
    std::optional<Socket> socket;
    try {
      socket = listener_.try_accept();
    } catch (const SystemError&) {
      return;  // out of descriptors: the connection stays pending
    }
    if (!socket) return;
    const auto descriptor = socket->number();
    newcomers_.push_front({std::move(*socket), Handshake::server(keys_), std::nullopt, std::nullopt,
                           Deadline::after(kHandshakeTimeout)});
    sources_[descriptor] = {nullptr, ConnectionKind::messages, newcomers_.begin()};
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
          attach(hello->rank, hello->kind,
                 {std::move(socket), std::move(*sealer), std::move(*opener)}, *hello);
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

void TcpNetwork::attach(int rank, ConnectionKind kind, Link::Connection connection,
                        const Hello& theirs) {
  auto& peer = peer_of(rank);
  if (peer.link->is_lost() || peer.link->descriptor(kind) >= 0) return;  // one link per process
  if (kind == ConnectionKind::messages && rank > rank_) {
    // The client waits for the answer; the buffer of a new socket has room for it.
    const auto answer = connection.sealer.seal(encode(hello(kind)));
    if (connection.socket.try_send(answer) != answer.size()) return;
  }
  set_timeout(connection.socket.number(), heartbeat_);
  settle_congestion_control(connection.socket.number(), congestion_control_);
  peer.link->attach(kind, std::move(connection), theirs);
  if (rank > rank_ && theirs.encrypts != hello(kind).encrypts) {
    return peer.link->lose(
        encryption_differs(theirs.encrypts ? rank : rank_, theirs.encrypts ? rank_ : rank));
  }
  const auto descriptor = peer.link->descriptor(kind);
  sources_[descriptor] = {&peer, kind, {}};
  peer.watched[kind] = EPOLLIN;
  watch_descriptor(descriptor, EPOLLIN, /*is_new=*/true);
}

}  // namespace lockstep
