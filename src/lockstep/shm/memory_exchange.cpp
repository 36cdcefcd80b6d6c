#include "lockstep/shm/memory_exchange_internal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/socket.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kHandshakeTimeout{5};     // per connection
constexpr std::chrono::milliseconds kWatchInterval{50};  // between two calls of `watch`

// The first message of a member.
struct MemberIdentity {
  std::int64_t member = 0;
  ProcessIdentity process = {};
};

// The name is random, so the keys of a connection are valid for this group only.
HandshakeContext context_of(const std::string& where) { return {.job = where, .round = 0}; }

// Returns when something can be received, or at the deadline.
void wait_readable(int number, Deadline deadline, const Watch& watch) {
  while (!deadline.expired()) {
    const auto slice = std::min(deadline, Deadline::after(kWatchInterval));
    pollfd watched{number, POLLIN, 0};
    if (::poll(&watched, 1, slice.poll_milliseconds()) > 0) return;
    if (watch) watch();
  }
}

template <typename T>
void send_values(Channel& channel, std::span<const T> values, Deadline deadline) {
  channel.send(std::as_bytes(values), deadline);
}

template <typename T>
std::vector<T> receive_values(Channel& channel, Deadline deadline) {
  const auto bytes = channel.receive(deadline);
  if (bytes.size() % sizeof(T) != 0) {
    throw SystemError(fmt::format("{} sent a message of the wrong size", channel.peer()), EPROTO);
  }
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The authenticated member; nullopt for any other connection.
std::optional<std::pair<MemberIdentity, Channel>> try_accept_member(Socket socket,
                                                                    const Secret& secret,
                                                                    const std::string& where,
                                                                    Deadline deadline) {
  const auto limit = std::min(deadline, Deadline::after(kHandshakeTimeout));
  try {
    if (socket.peer_user() != ::geteuid()) return std::nullopt;
    auto channel = Channel::accept(std::move(socket), secret, context_of(where), limit);
    const auto identities = receive_values<MemberIdentity>(channel, limit);
    if (identities.size() != 1) return std::nullopt;
    return std::pair{identities.front(), std::move(channel)};
  } catch (const Error&) {
    return std::nullopt;  // continue to listen: other members have yet to connect
  }
}

}  // namespace

SocketExchange::ListeningSocket SocketExchange::listen() {
  auto listener = Listener::unix_random("lockstep-group-");
  auto name = listener.unix_name();
  return {std::move(name), std::move(listener)};
}

std::unique_ptr<SocketExchange> SocketExchange::accept(ListeningSocket listening,
                                                       const Secret& secret, int size,
                                                       Deadline deadline, const Watch& watch) {
  std::vector<std::optional<Channel>> accepted(static_cast<std::size_t>(size));
  std::vector<ProcessIdentity> processes(accepted.size());
  processes[0] = ProcessIdentity::of(::getpid());
  for (int missing = size - 1; missing > 0;) {
    std::optional<Socket> socket;
    wait_readable(listening.listener.number(), deadline, watch);
    try {
      socket = listening.listener.accept(deadline);
    } catch (const SystemError& error) {
      if (error.error_number() != ETIMEDOUT) throw;
      std::vector<int> absent;
      for (int member = 1; member < size; ++member) {
        if (!accepted[static_cast<std::size_t>(member)]) absent.push_back(member);
      }
      throw SystemError(fmt::format("members {} of a group of {} have not connected in time",
                                    fmt::join(absent, ", "), size),
                        ETIMEDOUT);
    }
    auto member = try_accept_member(std::move(*socket), secret, listening.name, deadline);
    if (!member || member->first.member < 1 || member->first.member >= size) continue;
    auto& channel = accepted[static_cast<std::size_t>(member->first.member)];
    if (channel) continue;
    channel = std::move(member->second);
    processes[static_cast<std::size_t>(member->first.member)] = member->first.process;
    --missing;
  }
  std::vector<Channel> channels;
  for (std::size_t member = 1; member < accepted.size(); ++member) {
    send_values(*accepted[member], std::span<const ProcessIdentity>(processes), deadline);
    channels.push_back(std::move(*accepted[member]));
  }
  return std::unique_ptr<SocketExchange>(
      new SocketExchange(Role::root, std::move(channels), std::move(processes)));
}

std::unique_ptr<SocketExchange> SocketExchange::connect(const std::string& where,
                                                        const Secret& secret, int member,
                                                        Deadline deadline, const Watch& watch) {
  auto socket = Socket::connect_unix(where, deadline);
  if (socket.peer_user() != ::geteuid()) {
    throw UsageError(fmt::format("the Unix socket {} belongs to another user", where));
  }
  std::vector<Channel> channels;
  channels.push_back(Channel::connect(std::move(socket), secret, context_of(where), deadline));
  const MemberIdentity own{member, ProcessIdentity::of(::getpid())};
  send_values(channels.front(), std::span(&own, 1), deadline);
  wait_readable(channels.front().number(), deadline, watch);
  auto processes = receive_values<ProcessIdentity>(channels.front(), deadline);
  return std::unique_ptr<SocketExchange>(
      new SocketExchange(Role::peer, std::move(channels), std::move(processes)));
}

std::unique_ptr<SocketExchange> SocketExchange::alone() {
  return std::unique_ptr<SocketExchange>(
      new SocketExchange(Role::root, {}, {ProcessIdentity::of(::getpid())}));
}

SocketExchange::SocketExchange(Role role, std::vector<Channel> channels,
                               std::vector<ProcessIdentity> processes)
    : role_(role), channels_(std::move(channels)), processes_(std::move(processes)) {}

std::shared_ptr<SharedMemory> SocketExchange::make(std::size_t bytes, Deadline deadline,
                                                   const Watch& watch) {
  if (role_ == Role::peer) {
    wait_readable(channels_.front().number(), deadline, watch);
    return std::make_shared<SharedMemory>(channels_.front().receive_descriptor(deadline), bytes);
  }
  std::shared_ptr<SharedMemory> memory;
  try {
    memory = std::make_shared<SharedMemory>(bytes);
  } catch (const Error&) {
    channels_.clear();  // closes the connections; otherwise the members would wait
    throw;
  }
  // A member that has ended must not prevent the others from getting the memory.
  std::exception_ptr failure;
  for (auto& channel : channels_) {
    try {
      channel.send_descriptor(memory->descriptor(), deadline);
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return memory;
}

}  // namespace lockstep
