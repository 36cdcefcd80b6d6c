#include "lockstep/rendezvous/store.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/net/channel.h"
#include "lockstep/net/socket.h"
#include "lockstep/rendezvous/store_connection_internal.h"

namespace lockstep {

using std::chrono_literals::operator""ms;

struct Store::Connection {
  Connection(Channel proven, const Member& who, std::string where, std::string local, Secret known)
      : channel(std::move(proven)),
        member(who),
        server(std::move(where)),
        local_address(std::move(local)),
        secret(std::move(known)) {}

  Channel channel;
  Member member;
  std::string server;
  std::string local_address;
  Secret secret;

  std::mutex mutex;  // guards `used`
  std::condition_variable free;
  bool used = false;  // by one thread, which alone accesses the channel and the members below
  std::uint64_t last_id = 0;
  int lost = 0;  // the value of errno once the connection is unusable
  std::optional<std::vector<MemberStatus>> members;  // until the server announces a change

  // The next message of the server. Throws as Channel::receive does.
  StoreReplyMessage receive(Deadline deadline) {
    auto message = decode_reply(channel.receive(deadline));
    if (const auto* list = std::get_if<reply::Members>(&message.reply)) members = list->members;
    if (std::holds_alternative<reply::MembersChanged>(message.reply)) members.reset();
    return message;
  }
};

namespace {

// A thread's turn to use a connection.
template <typename Connection>
class Turn {
 public:
  Turn(Connection& connection, Deadline deadline) : connection_(connection) {
    std::unique_lock lock(connection_.mutex);
    if (!connection_.free.wait_until(lock, deadline.at(), [&] { return !connection_.used; })) {
      throw SystemError("another thread of this process still uses the store", ETIMEDOUT);
    }
    connection_.used = true;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    const std::lock_guard lock(connection_.mutex);
    connection_.used = false;
    connection_.free.notify_one();
  }

 private:
  Connection& connection_;
};

std::chrono::milliseconds limit_until(Deadline deadline) {
  return std::min(std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()), kLongestWait);
}

Deadline later(Deadline deadline, std::chrono::milliseconds grace) {
  constexpr auto last = Deadline::Clock::time_point::max();
  return Deadline(deadline.at() > last - grace ? last : deadline.at() + grace);
}

SystemError server_is_lost(const std::string& server, int error_number) {
  return {fmt::format("the rendezvous server at {} is lost", server), error_number};
}

StoreReply or_throw(StoreReply reply) {
  if (const auto* refused = std::get_if<reply::Refused>(&reply)) throw UsageError(refused->text);
  if (const auto* failed = std::get_if<reply::PeerFailed>(&reply)) {
    throw PeerError(failed->member.number, failed->text);
  }
  if (const auto* late = std::get_if<reply::TimedOut>(&reply)) {
    throw SystemError(late->text, ETIMEDOUT);
  }
  return reply;
}

// The answer, if it has the kind that belongs to the request.
template <typename Reply>
Reply expect(StoreReply reply) {
  auto* expected = std::get_if<Reply>(&reply);
  if (expected != nullptr) return std::move(*expected);
  throw UsageError(
      fmt::format("the store answered with a message of kind {}, which does not belong to the "
                  "request: start all processes with the same version of lockstep",
                  reply.index()));
}

constexpr std::chrono::milliseconds kOneTry = 5000ms;  // leaves time for further tries

// The deadline for connecting only: 100 ms twice, 200 ms twice, and so on. If a flood has filled
// the server's queue, a new try has another chance at once, but the kernel retransmits the first
// packet only after a second.
Deadline for_connecting(Deadline deadline, int tries) {
  const auto limit = std::min(100ms * (1 << std::min((tries - 1) / 2, 6)), kOneTry);
  return std::min(deadline, Deadline::after(limit));
}

// Returns the result of `attempt`, which is called with the number of the try, from 1. While it
// throws SystemError, tries again until the deadline: the server may not have started yet, or may
// be too busy.
template <typename Attempt>
auto until_reached(const std::string& server, Deadline deadline, const Attempt& attempt) {
  auto pause = 5ms;
  for (int tries = 1;; ++tries) {
    try {
      return attempt(tries);
    } catch (const SystemError& error) {
      if (deadline.remaining() <= pause) {
        throw SystemError(
            fmt::format("cannot reach the rendezvous server at {} after {} tries ({})", server,
                        tries, error.what()),
            ETIMEDOUT);
      }
    }
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
    pause = std::min(pause * 2, 200ms);
  }
}

}  // namespace

Store Store::connect(const Endpoint& server, const Secret& secret, const HandshakeContext& context,
                     const Member& member, Deadline deadline) {
  const auto where = server.to_string();
  return until_reached(where, deadline, [&](int tries) {
    const auto limit = std::min(deadline, Deadline::after(kOneTry));
    auto socket = Socket::connect(server, for_connecting(deadline, tries));
    keep_alive(socket.number());
    auto local_address = socket.local_endpoint().host;
    auto channel = Channel::connect(std::move(socket), secret, context, limit);
    return introduce(std::make_unique<Connection>(std::move(channel), member, where,
                                                  std::move(local_address), secret.copy()),
                     limit);
  });
}

Store Store::connect_unix(std::string_view name, const Secret& secret,
                          const HandshakeContext& context, const Member& member,
                          Deadline deadline) {
  const auto where = fmt::format("the Unix socket {}", name);
  return until_reached(where, deadline, [&](int /*tries*/) {
    const auto limit = std::min(deadline, Deadline::after(kOneTry));
    auto channel = Channel::connect(Socket::connect_unix(name, limit), secret, context, limit);
    return introduce(
        std::make_unique<Connection>(std::move(channel), member, where, "127.0.0.1", secret.copy()),
        limit);
  });
}

Store Store::introduce(std::unique_ptr<Connection> connection, Deadline deadline) {
  Store store(std::move(connection));
  (void)expect<reply::Done>(store.ask(request::Hello{store.member()}, deadline));
  return store;
}

Store::Store(std::unique_ptr<Connection> connection) noexcept
    : connection_(std::move(connection)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&& other) noexcept {
  std::swap(connection_, other.connection_);  // the old connection leaves when `other` is destroyed
  return *this;
}

Store::~Store() {
  if (!connection_ || connection_->lost != 0) return;
  try {
    connection_->channel.send(
        encode(StoreRequestMessage{++connection_->last_id, request::Goodbye{}}),
        Deadline::after(100ms));
  } catch (const Error&) {  // then the server reports this member as lost
  }
}

void Store::set(std::string_view key, std::span<const std::byte> value, Deadline deadline) {
  (void)expect<reply::Done>(
      ask(request::Set{std::string(key), {value.begin(), value.end()}}, deadline));
}

void Store::set(std::string_view key, std::string_view text, Deadline deadline) {
  set(key, std::as_bytes(std::span(text)), deadline);
}

StoreValue Store::get(std::string_view key, Deadline deadline, std::optional<Member> from) {
  auto answer = expect<reply::Value>(
      ask(request::Get{std::string(key), from, limit_until(deadline)}, deadline, kAnswerGrace));
  return std::move(answer.value).value_or(StoreValue{});
}

std::string Store::get_text(std::string_view key, Deadline deadline, std::optional<Member> from) {
  const auto value = get(key, deadline, from);
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

std::optional<StoreValue> Store::try_get(std::string_view key, Deadline deadline) {
  return expect<reply::Value>(ask(request::TryGet{std::string(key)}, deadline)).value;
}

std::int64_t Store::add(std::string_view key, std::int64_t amount, Deadline deadline) {
  return expect<reply::Number>(ask(request::Add{std::string(key), amount}, deadline)).number;
}

ExchangeResult Store::compare_exchange(std::string_view key,
                                       std::optional<std::span<const std::byte>> expected,
                                       std::span<const std::byte> desired, Deadline deadline) {
  request::CompareExchange request{std::string(key), {}, {desired.begin(), desired.end()}};
  if (expected) request.expected.emplace(expected->begin(), expected->end());
  auto answer = expect<reply::Exchanged>(ask(std::move(request), deadline));
  return {answer.happened == 1, std::move(answer.before)};
}

bool Store::remove(std::string_view key, Deadline deadline) {
  return expect<reply::Number>(ask(request::Remove{std::string(key)}, deadline)).number > 0;
}

void Store::wait(std::span<const std::string> keys, Deadline deadline, std::optional<Member> from) {
  (void)expect<reply::Done>(
      ask(request::Wait{{keys.begin(), keys.end()}, from, limit_until(deadline)}, deadline,
          kAnswerGrace));
}

void Store::barrier(std::string_view name, std::span<const Member> members, Deadline deadline) {
  request::Barrier request{
      std::string(name), {members.begin(), members.end()}, limit_until(deadline)};
  std::sort(request.members.begin(), request.members.end());
  (void)expect<reply::Done>(ask(std::move(request), deadline, kAnswerGrace));
}

std::optional<std::vector<MemberStatus>> Store::try_known_members(Deadline deadline) {
  auto& connection = *connection_;
  const Turn turn(connection, deadline);
  try {
    pollfd ready{connection.channel.number(), POLLIN, 0};
    while (connection.lost == 0 && connection.members && ::poll(&ready, 1, 0) > 0) {
      (void)connection.receive(deadline);
    }
  } catch (const SystemError& error) {
    if (error.error_number() != ETIMEDOUT) connection.lost = error.error_number();
    return std::nullopt;
  }
  return connection.lost == 0 ? connection.members : std::nullopt;
}

std::vector<MemberStatus> Store::members(Deadline deadline) {
  if (auto known = try_known_members(deadline)) return std::move(*known);
  return expect<reply::Members>(ask(request::ListMembers{}, deadline)).members;
}

const Member& Store::member() const noexcept { return connection_->member; }
const std::string& Store::server() const noexcept { return connection_->server; }
const std::string& Store::local_address() const noexcept { return connection_->local_address; }
const Secret& Store::secret() const noexcept { return connection_->secret; }
int Store::number() const noexcept { return connection_->channel.number(); }

StoreReply Store::ask(StoreRequest request, Deadline deadline, std::chrono::milliseconds grace) {
  auto& connection = *connection_;
  const Turn turn(connection, deadline);
  if (connection.lost != 0) throw server_is_lost(connection.server, connection.lost);
  const auto id = ++connection.last_id;
  const auto message = encode(StoreRequestMessage{id, std::move(request)});
  const auto limit = later(deadline, grace);
  bool sent = false;
  StoreReplyMessage answer;
  try {
    connection.channel.send(message, deadline);
    sent = true;
    do {
      answer = connection.receive(limit);
    } while (answer.id != id);  // skips announcements, and answers to requests that timed out
  } catch (const SystemError& error) {
    // A complete request without an answer in time leaves the connection usable.
    if (sent && error.error_number() == ETIMEDOUT && limit.expired()) {
      throw SystemError(
          fmt::format("the rendezvous server at {} does not answer: its process may be stopped, or "
                      "the network interrupted",
                      connection.server),
          ETIMEDOUT);
    }
    connection.lost = error.error_number();
    throw server_is_lost(connection.server, connection.lost);
  }
  return or_throw(std::move(answer.reply));
}

}  // namespace lockstep
