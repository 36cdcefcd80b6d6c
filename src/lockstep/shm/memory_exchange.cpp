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

constexpr std::chrono::seconds kPatience{5};            // with one process that comes
constexpr std::chrono::milliseconds kBetweenLooks{50};  // at whom one waits for

// What a member says when it is let in.
struct Introduction {
  std::int64_t member = 0;
  ProcessIdentity process = {};
};

// The name is random, so the keys of a connection serve this group alone.
HandshakeContext context_of(const std::string& where) { return {.job = where, .round = 0}; }

// Returns when something can be received, or at the deadline.
void wait_readable(int number, Deadline deadline, const Watch& watch) {
  while (!deadline.expired()) {
    const auto slice = std::min(deadline, Deadline::after(kBetweenLooks));
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

// A member that has proven itself; nothing for anybody else.
std::optional<std::pair<Introduction, Channel>> let_in(Socket socket, const Secret& secret,
                                                       const std::string& where,
                                                       Deadline deadline) {
  const auto limit = std::min(deadline, Deadline::after(kPatience));
  try {
    if (socket.peer_user() != ::geteuid()) return std::nullopt;
    auto channel = Channel::accept(std::move(socket), secret, context_of(where), limit);
    const auto said = receive_values<Introduction>(channel, limit);
    if (said.size() != 1) return std::nullopt;
    return std::pair{said.front(), std::move(channel)};
  } catch (const Error&) {
    return std::nullopt;  // the listener goes on: members are still to come
  }
}

}  // namespace

SocketExchange::Door SocketExchange::open() {
  auto listener = Listener::unix_random("lockstep-group-");
  auto name = listener.unix_name();
  return {std::move(name), std::move(listener)};
}

std::unique_ptr<SocketExchange> SocketExchange::lead(Door door, const Secret& secret, int size,
                                                     Deadline deadline, const Watch& watch) {
  std::vector<std::optional<Channel>> came(static_cast<std::size_t>(size));
  std::vector<ProcessIdentity> processes(came.size());
  processes[0] = ProcessIdentity::of(::getpid());
  for (int missing = size - 1; missing > 0;) {
    std::optional<Socket> socket;
    wait_readable(door.listener.number(), deadline, watch);
    try {
      socket = door.listener.accept(deadline);
    } catch (const SystemError& error) {
      if (error.error_number() != ETIMEDOUT) throw;
      std::vector<int> absent;
      for (int member = 1; member < size; ++member) {
        if (!came[static_cast<std::size_t>(member)]) absent.push_back(member);
      }
      throw SystemError(fmt::format("members {} of a group of {} have not come for its memory",
                                    fmt::join(absent, ", "), size),
                        ETIMEDOUT);
    }
    auto member = let_in(std::move(*socket), secret, door.name, deadline);
    if (!member || member->first.member < 1 || member->first.member >= size) continue;
    auto& place = came[static_cast<std::size_t>(member->first.member)];
    if (place) continue;
    place = std::move(member->second);
    processes[static_cast<std::size_t>(member->first.member)] = member->first.process;
    --missing;
  }
  std::vector<Channel> channels;
  for (std::size_t member = 1; member < came.size(); ++member) {
    send_values(*came[member], std::span<const ProcessIdentity>(processes), deadline);
    channels.push_back(std::move(*came[member]));
  }
  return std::unique_ptr<SocketExchange>(
      new SocketExchange(Role::leader, std::move(channels), std::move(processes)));
}

std::unique_ptr<SocketExchange> SocketExchange::follow(const std::string& where,
                                                       const Secret& secret, int member,
                                                       Deadline deadline, const Watch& watch) {
  auto socket = Socket::connect_unix(where, deadline);
  if (socket.peer_user() != ::geteuid()) {
    throw UsageError(fmt::format("the Unix socket {} belongs to another user", where));
  }
  std::vector<Channel> channels;
  channels.push_back(Channel::connect(std::move(socket), secret, context_of(where), deadline));
  const Introduction own{member, ProcessIdentity::of(::getpid())};
  send_values(channels.front(), std::span(&own, 1), deadline);
  wait_readable(channels.front().number(), deadline, watch);
  auto processes = receive_values<ProcessIdentity>(channels.front(), deadline);
  return std::unique_ptr<SocketExchange>(
      new SocketExchange(Role::follower, std::move(channels), std::move(processes)));
}

std::unique_ptr<SocketExchange> SocketExchange::alone() {
  return std::unique_ptr<SocketExchange>(
      new SocketExchange(Role::leader, {}, {ProcessIdentity::of(::getpid())}));
}

SocketExchange::SocketExchange(Role role, std::vector<Channel> channels,
                               std::vector<ProcessIdentity> processes)
    : role_(role), channels_(std::move(channels)), processes_(std::move(processes)) {}

std::shared_ptr<SharedMemory> SocketExchange::make(std::size_t bytes, Deadline deadline,
                                                   const Watch& watch) {
  if (role_ == Role::follower) {
    wait_readable(channels_.front().number(), deadline, watch);
    auto memory =
        std::make_shared<SharedMemory>(channels_.front().receive_descriptor(deadline), bytes);
    memory->close_descriptor();
    return memory;
  }
  std::shared_ptr<SharedMemory> memory;
  try {
    memory = std::make_shared<SharedMemory>(bytes);
  } catch (const Error&) {
    channels_.clear();  // or the members would wait for it
    throw;
  }
  // One that is gone keeps nobody else from its memory.
  std::exception_ptr failure;
  for (auto& channel : channels_) {
    try {
      channel.send_descriptor(memory->descriptor(), deadline);
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  memory->close_descriptor();
  if (failure) std::rethrow_exception(failure);
  return memory;
}

}  // namespace lockstep
