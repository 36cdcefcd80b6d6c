#include "lockstep/rendezvous/store_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stop_token>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/crash_handler.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/rendezvous/store_connection_internal.h"
#include "lockstep/rendezvous/store_message.h"
#include "lockstep/rendezvous/store_state_internal.h"

namespace lockstep {
namespace {

using Clock = Deadline::Clock;
using std::chrono_literals::operator""ms;

// The data of an epoll event: one of these, or the number of a connection.
constexpr std::uint64_t kStop = 0;
constexpr std::uint64_t kAccept = 1;
constexpr std::uint64_t kFirstConnection = 2;

constexpr auto kAcceptPause = 100ms;  // when descriptors have run out
constexpr int kMostAtOnce = 64;       // accepts, or messages of one connection, in one turn

FileDescriptor checked(int number, std::string_view what) {
  if (number < 0) throw SystemError(what, errno);
  return FileDescriptor(number);
}

}  // namespace

// Runs on the server's thread, except for the constructor, wake, listener, has_had_members,
// bytes_sent and num_requests.
class StoreServer::Loop {
 public:
  Loop(Listener listener, const Secret& secret, HandshakeContext context,
       const StoreServerOptions& options)
      : listener_(std::move(listener)),
        keys_(std::make_shared<const HandshakeKeys>(secret, std::move(context))),
        options_(options),
        epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "cannot create an epoll descriptor")),
        stop_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "cannot create an eventfd")),
        state_(options.max_stored_bytes) {
    watch(EPOLL_CTL_ADD, stop_.number(), kStop, EPOLLIN);
    watch(EPOLL_CTL_ADD, listener_.number(), kAccept, EPOLLIN);
  }

  void run(const std::stop_token& stop) {
    const AlternateSignalStack stack;
    std::array<epoll_event, 256> events{};
    while (!stop.stop_requested()) {
      const int count = ::epoll_wait(epoll_.number(), events.data(), events.size(), timeout());
      for (int i = 0; i < count; ++i) attend(events.at(static_cast<std::size_t>(i)).data.u64);
      for (const auto id : std::exchange(unfinished_, {})) serve(id);
      keep_time();
      deliver();
    }
  }

  void wake() const noexcept { ::eventfd_write(stop_.number(), 1); }
  [[nodiscard]] const Listener& listener() const noexcept { return listener_; }
  [[nodiscard]] bool has_had_members() const noexcept { return has_had_members_; }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }
  [[nodiscard]] std::uint64_t num_requests() const noexcept { return num_requests_; }

 private:
  using Id = std::uint64_t;

  struct Client {
    StoreConnection connection;
    std::optional<Clock::time_point> limit;  // when it is dropped unless it makes progress
    bool writing = false;                    // epoll watches for room to write, not for requests
    bool closing = false;                    // dropped once its output is sent
    std::uint64_t counted = 0;               // of its bytes, those in bytes_sent_
  };

  [[nodiscard]] int timeout() const {
    if (!unfinished_.empty()) return 0;
    std::optional<Clock::time_point> next = state_.next_expiry();
    const auto sooner = [&next](Clock::time_point at) { next = next ? std::min(*next, at) : at; };
    if (!limits_.empty()) sooner(limits_.begin()->first);
    if (accept_again_) sooner(*accept_again_);
    return next ? Deadline(*next).poll_milliseconds() : -1;
  }

  void attend(std::uint64_t what) {
    if (what == kAccept) {
      accept();
    } else if (what >= kFirstConnection) {
      serve(what);
    }
    deliver();
  }

  void accept() {
    for (int i = 0; i < kMostAtOnce; ++i) {
      try {
        auto socket = listener_.try_accept();
        if (!socket) return;
        // A member has usually sent its first message already: it is served before new connections
        // can displace it.
        serve(admit({std::move(*socket), keys_}));
      } catch (const std::exception&) {
        // Descriptors or memory have run out. The connection stays in the kernel's queue, and epoll
        // would report it again at once: stop watching the listener for a moment.
        try_watch(EPOLL_CTL_MOD, listener_.number(), kAccept, 0);
        accept_again_ = Clock::now() + kAcceptPause;
        return;
      }
    }
  }

  Id admit(StoreConnection connection) {
    if (silent_.size() + pending_.size() >= options_.max_pending) {
      drop(any_of(silent_.empty() ? pending_ : silent_));
    }
    const Id id = next_id_++;
    watch(EPOLL_CTL_ADD, connection.number(), id, EPOLLIN);
    clients_.emplace(id, Client{std::move(connection), {}});
    silent_.insert(id);
    limit(id, Clock::now() + options_.pending_limit);
    return id;
  }

  // A random element of a set that is not empty. Ids are consecutive, so a random number in their
  // range chooses fairly.
  Id any_of(const std::set<Id>& ids) {
    std::uniform_int_distribution<Id> range(*ids.begin(), *ids.rbegin());
    return *ids.lower_bound(range(random_));
  }

  // Handles the requests of a connection, as long as it reads its replies.
  void serve(Id id) {
    try {
      for (int i = 0; i < kMostAtOnce; ++i) {
        const auto client = clients_.find(id);
        if (client == clients_.end()) return;
        if (!flush(id, client->second)) return;
        auto message = client->second.connection.try_next();
        if (client->second.connection.has_spoken() && silent_.erase(id) > 0) pending_.insert(id);
        if (!message) {
          if (client->second.connection.ended()) return drop(id);
          // A reply of the handshake may still be queued.
          flush(id, client->second);
          return;
        }
        handle(id, decode_request(*message));
      }
      unfinished_.insert(id);
    } catch (const std::exception&) {
      drop(id);  // it violated the protocol, or its connection is lost
    }
  }

  void handle(Id id, StoreRequestMessage message) {
    const bool was_member = state_.is_member(id);
    ++num_requests_;
    state_.handle(id, std::move(message), Clock::now());
    deliver();
    const bool is_member = state_.is_member(id);
    if (!was_member && is_member && pending_.erase(id) > 0) {
      limit(id, std::nullopt);
      keep_alive(clients_.at(id).connection.number());
      has_had_members_ = true;
    }
    if (was_member && !is_member) drop(id);  // it has left
  }

  // Sends queued output. Returns false when some is still queued or the connection was dropped.
  bool flush(Id id, Client& client) {
    const bool progress = client.connection.flush();
    const auto sent = client.connection.bytes_sent();
    bytes_sent_ += sent - std::exchange(client.counted, sent);
    const bool more = client.connection.has_output();
    if (more != client.writing) {
      watch(EPOLL_CTL_MOD, client.connection.number(), id, more ? EPOLLOUT : EPOLLIN);
      client.writing = more;
    }
    if (!pending_.contains(id) && !silent_.contains(id)) {
      if (!more) {
        limit(id, std::nullopt);
      } else if (progress || !client.limit) {
        limit(id, Clock::now() + options_.stalled_reader_limit);
      }
    }
    if (more) return false;
    if (client.closing) drop(id);
    return clients_.contains(id);
  }

  // Queues the state's answers at their connections.
  void deliver() {
    for (auto answers = state_.release_answers(); !answers.empty();
         answers = state_.release_answers()) {
      for (const auto& answer : answers) {
        const auto client = clients_.find(answer.to);
        if (client == clients_.end()) continue;
        try {
          client->second.connection.send(encode(answer.message));
          client->second.closing = answer.then_close;
          flush(answer.to, client->second);
        } catch (const std::exception&) {
          drop(answer.to);
        }
      }
    }
  }

  void keep_time() {
    const auto now = Clock::now();
    state_.expire(now);
    while (!limits_.empty() && limits_.begin()->first <= now) drop(limits_.begin()->second);
    if (accept_again_ && *accept_again_ <= now) {
      accept_again_.reset();
      if (!try_watch(EPOLL_CTL_MOD, listener_.number(), kAccept, EPOLLIN)) {
        accept_again_ = now + kAcceptPause;
      }
    }
  }

  void drop(Id id) {
    limit(id, std::nullopt);
    silent_.erase(id);
    pending_.erase(id);
    clients_.erase(id);  // closing the descriptor removes it from epoll
    state_.disconnected(id);
  }

  void limit(Id id, std::optional<Clock::time_point> at) {
    const auto client = clients_.find(id);
    if (client == clients_.end()) return;
    if (client->second.limit) limits_.erase({*client->second.limit, id});
    client->second.limit = at;
    if (at) limits_.emplace(*at, id);
  }

  void watch(int operation, int descriptor, std::uint64_t what, std::uint32_t for_what) const {
    if (!try_watch(operation, descriptor, what, for_what)) {
      throw SystemError("cannot watch a connection of the store", errno);
    }
  }

  bool try_watch(int operation, int descriptor, std::uint64_t what,
                 std::uint32_t for_what) const noexcept {
    epoll_event event{};
    event.events = for_what;
    event.data.u64 = what;
    return ::epoll_ctl(epoll_.number(), operation, descriptor, &event) == 0;
  }

  Listener listener_;
  std::shared_ptr<const HandshakeKeys> keys_;
  StoreServerOptions options_;
  FileDescriptor epoll_;
  FileDescriptor stop_;
  StoreState state_;
  Id next_id_ = kFirstConnection;
  std::unordered_map<Id, Client> clients_;
  std::set<Id> silent_;                                // have sent no complete first message
  std::set<Id> pending_;                               // have sent it, and are not members yet
  std::minstd_rand random_{std::random_device{}()};    // chooses which of these to close
  std::atomic<bool> has_had_members_ = false;          // read by other threads
  std::atomic<std::uint64_t> bytes_sent_ = 0;          // likewise
  std::atomic<std::uint64_t> num_requests_ = 0;        // likewise
  std::set<std::pair<Clock::time_point, Id>> limits_;  // the clients' limits, in order
  std::set<Id> unfinished_;                            // have more messages than one turn allows
  std::optional<Clock::time_point> accept_again_;      // while descriptors have run out
};

StoreServer::StoreServer(Listener listener, const Secret& secret, HandshakeContext context,
                         const StoreServerOptions& options)
    : loop_(std::make_unique<Loop>(std::move(listener), secret, std::move(context), options)),
      thread_([loop = loop_.get()](const std::stop_token& stop) { loop->run(stop); }) {}

StoreServer::~StoreServer() {
  thread_.request_stop();
  loop_->wake();
}

Endpoint StoreServer::endpoint() const { return loop_->listener().endpoint(); }

bool StoreServer::has_had_members() const noexcept { return loop_->has_had_members(); }

std::uint64_t StoreServer::bytes_sent() const noexcept { return loop_->bytes_sent(); }
std::uint64_t StoreServer::num_requests() const noexcept { return loop_->num_requests(); }

const std::string& StoreServer::where() const noexcept { return loop_->listener().where(); }

}  // namespace lockstep
