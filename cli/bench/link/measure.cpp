#include "cli/bench/link/measure.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBlockBytes = 256U << 10;
constexpr std::uint64_t kProbeBytes = 1U << 20;     // before each stream, to know its length
constexpr std::uint64_t kMostBytes = 16ULL << 30U;  // of a stream
constexpr int kProbePings = 10;
constexpr std::uint64_t kMostPings = 1000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <typename T>
void send_value(Socket& socket, const T& value, Deadline deadline) {
  socket.send_all(std::as_bytes(std::span(&value, 1)), deadline);
}

template <typename T>
T receive_value(Socket& socket, Deadline deadline) {
  T value{};
  socket.receive_exactly(std::as_writable_bytes(std::span(&value, 1)), deadline);
  return value;
}

void authenticate(Socket& socket, Handshake handshake, Deadline deadline) {
  while (true) {
    const auto output = handshake.release_output();
    if (!output.empty()) socket.send_all(output, deadline);
    if (handshake.done()) return;
    std::vector<std::byte> bytes(handshake.wanted());
    socket.receive_exactly(bytes, deadline);
    (void)handshake.feed(bytes);
  }
}

// Waits until one of the sockets with bytes left is ready.
void wait_for(const std::vector<Socket>& sockets, std::span<const std::uint64_t> left, short events,
              Deadline deadline) {
  std::vector<pollfd> waits;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] > 0) waits.push_back({sockets[i].number(), events, 0});
  }
  const int count = ::poll(waits.data(), waits.size(), deadline.poll_milliseconds());
  if (count == 0) throw SystemError("no bytes have moved between the two ranks", ETIMEDOUT);
  if (count < 0 && errno != EINTR) throw SystemError("cannot wait for a connection", errno);
}

std::vector<std::uint64_t> shares_of(std::uint64_t bytes, int num_sockets) {
  std::vector<std::uint64_t> shares(static_cast<std::size_t>(num_sockets));
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i] = bytes * (i + 1) / shares.size() - bytes * i / shares.size();
  }
  return shares;
}

// Returns seconds, from the first byte to the receiver's answer.
double send_stream(std::vector<Socket>& sockets, int num_sockets, std::uint64_t bytes,
                   Deadline deadline) {
  static constexpr std::array<std::byte, kBlockBytes> kBlock{};
  send_value(sockets[0], bytes, deadline);
  auto left = shares_of(bytes, num_sockets);
  const auto start = Clock::now();
  while (std::ranges::any_of(left, [](auto count) { return count > 0; })) {
    bool has_moved = false;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] == 0) continue;
      const auto block = std::span(kBlock).first(std::min<std::uint64_t>(left[i], kBlockBytes));
      const auto sent = sockets[i].try_send(block);
      left[i] -= sent.value_or(0);
      has_moved = has_moved || sent.has_value();
    }
    if (!has_moved) wait_for(sockets, left, POLLOUT, deadline);
  }
  (void)receive_value<char>(sockets[0], deadline);
  return seconds_since(start);
}

void receive_stream(std::vector<Socket>& sockets, int num_sockets, Deadline deadline) {
  auto left = shares_of(receive_value<std::uint64_t>(sockets[0], deadline), num_sockets);
  std::vector<std::byte> block(kBlockBytes);
  while (std::ranges::any_of(left, [](auto count) { return count > 0; })) {
    bool has_moved = false;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] == 0) continue;
      const auto room = std::span(block).first(std::min<std::uint64_t>(left[i], kBlockBytes));
      const auto received = sockets[i].try_receive(room);
      if (received == std::size_t{0}) {
        throw SystemError("the other rank has closed the connection", ECONNRESET);
      }
      left[i] -= received.value_or(0);
      has_moved = has_moved || received.has_value();
    }
    if (!has_moved) wait_for(sockets, left, POLLIN, deadline);
  }
  send_value(sockets[0], char{1}, deadline);
}

// Bytes per second, at both ends: the sender measures and tells. A short stream determines the
// length of the timed one.
double stream_rate(std::vector<Socket>& sockets, int num_sockets, bool sends,
                   std::chrono::milliseconds time, double latency, Deadline deadline) {
  if (!sends) {
    for (int i = 0; i < 2; ++i) receive_stream(sockets, num_sockets, deadline);
    return receive_value<double>(sockets[0], deadline);
  }
  const double probe = send_stream(sockets, num_sockets, kProbeBytes, deadline);
  const double wanted = kProbeBytes * std::chrono::duration<double>(time).count() / probe;
  const auto bytes = std::clamp(static_cast<std::uint64_t>(wanted), kProbeBytes, kMostBytes);
  const double took = send_stream(sockets, num_sockets, bytes, deadline);
  // The answer takes one latency that no byte of the stream has.
  const double rate = static_cast<double>(bytes) / std::max(took - latency, took / 2);
  send_value(sockets[0], rate, deadline);
  return rate;
}

double median_round_trip(Socket& socket, std::uint64_t count, Deadline deadline) {
  std::vector<double> times;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto start = Clock::now();
    send_value(socket, i, deadline);
    (void)receive_value<std::uint64_t>(socket, deadline);
    times.push_back(seconds_since(start));
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double measure_latency(Socket& socket, LinkSide side, std::chrono::milliseconds time,
                       Deadline deadline) {
  if (side == LinkSide::second) {
    for (int i = 0; i < 2; ++i) {
      const auto count = receive_value<std::uint64_t>(socket, deadline);
      for (std::uint64_t ping = 0; ping < count; ++ping) {
        send_value(socket, receive_value<std::uint64_t>(socket, deadline), deadline);
      }
    }
    return receive_value<double>(socket, deadline);
  }
  send_value(socket, std::uint64_t{kProbePings}, deadline);
  const double probe = median_round_trip(socket, kProbePings, deadline);
  const double wanted = std::chrono::duration<double>(time).count() / probe;
  const auto count =
      std::clamp(static_cast<std::uint64_t>(wanted), std::uint64_t{kProbePings}, kMostPings);
  send_value(socket, count, deadline);
  const double latency = median_round_trip(socket, count, deadline) / 2;
  send_value(socket, latency, deadline);
  return latency;
}

std::int64_t retransmits_of(const std::vector<Socket>& sockets) {
  std::int64_t sum = 0;
  for (const auto& socket : sockets) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (::getsockopt(socket.number(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
      sum += info.tcpi_total_retrans;
    }
  }
  return sum;
}

}  // namespace

std::vector<Socket> accept_link(Listener& listener, const Secret& secret,
                                const HandshakeContext& context, Deadline deadline) {
  std::vector<Socket> sockets;
  while (sockets.size() < kStripes) {
    auto socket = listener.accept(deadline);
    try {
      authenticate(socket, Handshake::server(secret, context),
                   std::min(deadline, Deadline::after(std::chrono::seconds(10))));
    } catch (const Error&) {
      continue;  // a process without the secret, or one that has ended
    }
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

std::vector<Socket> connect_link(const Endpoint& endpoint, const Secret& secret,
                                 const HandshakeContext& context, Deadline deadline) {
  std::vector<Socket> sockets;
  while (sockets.size() < kStripes) {
    auto socket = Socket::connect(endpoint, deadline);
    authenticate(socket, Handshake::client(secret, context), deadline);
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

LinkFigures measure_link(std::vector<Socket>& sockets, LinkSide side,
                         std::chrono::milliseconds time, Deadline deadline) {
  const bool is_first = side == LinkSide::first;
  LinkFigures figures;
  figures.latency = measure_latency(sockets[0], side, time, deadline);
  figures.bandwidth = stream_rate(sockets, 1, is_first, time, figures.latency, deadline);
  figures.back_bandwidth = stream_rate(sockets, 1, !is_first, time, figures.latency, deadline);
  figures.stripes = kStripes;
  figures.striped_bandwidth =
      stream_rate(sockets, kStripes, is_first, time, figures.latency, deadline);
  const auto own = retransmits_of(sockets);
  send_value(sockets[0], own, deadline);
  figures.retransmits = own + receive_value<std::int64_t>(sockets[0], deadline);
  return figures;
}

std::string congestion_control(const Socket& socket) {
  std::array<char, 16> name{};
  socklen_t size = name.size() - 1;
  if (::getsockopt(socket.number(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0)
    return "";
  return name.data();
}

}  // namespace lockstep::cli
