// The state of a store's server and its rules: keys, members and waits. It has no socket and no
// clock: it receives requests, ends of connections and the time, and produces answers. So the rules
// are tested without a network.
//
// Words: a connection is a number that its owner chose; Hello assigns it to a member. A wait is a
// request that is answered later. A connection has at most one; its next request cancels an older
// wait without an answer (its client has timed out).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/member.h"
#include "lockstep/rendezvous/store_message.h"

namespace lockstep {

class StoreState {
 public:
  using Connection = std::uint64_t;
  using Time = Deadline::Clock::time_point;

  struct Answer {
    Connection to = 0;
    StoreReplyMessage message;
    bool then_close = false;  // the connection is refused
  };

  explicit StoreState(std::size_t max_stored_bytes) : max_stored_bytes_(max_stored_bytes) {}

  void handle(Connection from, StoreRequestMessage message, Time now);
  /// The connection has ended. If its member has not left, it is lost: waits for it end with an
  /// error.
  void disconnected(Connection connection);
  /// Answers the waits whose limit has passed.
  void expire(Time now);

  /// Returns the answers since the last call, in order.
  [[nodiscard]] std::vector<Answer> release_answers() { return std::exchange(answers_, {}); }
  /// When the next wait expires; nullopt without waits.
  [[nodiscard]] std::optional<Time> next_expiry() const;
  /// True for a connection that has sent Hello and has not ended or left.
  [[nodiscard]] bool is_member(Connection connection) const {
    return sessions_.contains(connection);
  }

 private:
  struct KeyWait {
    std::vector<std::string> keys;
    std::size_t next = 0;  // the first key that did not exist when checked
    std::optional<Member> from;
    bool wants_value = false;
  };
  struct BarrierWait {
    std::string name;
  };
  struct PendingWait {
    std::uint64_t request = 0;
    Time until;
    std::chrono::milliseconds limit{0};
    std::variant<KeyWait, BarrierWait> what;
  };
  struct Session {
    Member member;
    std::optional<PendingWait> wait;
  };
  struct Presence {
    MemberState state = MemberState::connected;
    Connection connection = 0;
  };
  struct Barrier {
    std::vector<Member> members;
    std::map<Member, Connection> came;  // members that wait in it
    std::set<Member> gave_up;           // members that came and timed out; for the others' message
  };

  void welcome(Connection from, std::uint64_t id, const request::Hello& hello);
  void on(Connection from, std::uint64_t id, request::Hello& again, Time now);
  void on(Connection from, std::uint64_t id, request::Set& set, Time now);
  void on(Connection from, std::uint64_t id, request::Get& get, Time now);
  void on(Connection from, std::uint64_t id, request::TryGet& get, Time now);
  void on(Connection from, std::uint64_t id, request::Add& add, Time now);
  void on(Connection from, std::uint64_t id, request::CompareExchange& exchange, Time now);
  void on(Connection from, std::uint64_t id, request::Remove& remove, Time now);
  void on(Connection from, std::uint64_t id, request::Wait& wait, Time now);
  void on(Connection from, std::uint64_t id, request::Barrier& barrier, Time now);
  void on(Connection from, std::uint64_t id, request::ListMembers& list, Time now);
  void on(Connection from, std::uint64_t id, request::Goodbye& goodbye, Time now);

  /// Tells the connections that have the list of members that it is no longer true.
  void announce_change();
  void answer(Connection to, std::uint64_t id, StoreReply reply, bool then_close = false);
  /// Stores the value. Returns false, after an answer that refuses it, when the store is full.
  bool put(Connection from, std::uint64_t id, const std::string& key, StoreValue value);
  void begin_wait(Connection from, PendingWait wait);
  void end_wait(Connection connection);
  /// Ends the wait of `connection` with `reply`.
  void finish(Connection connection, StoreReply reply);
  /// Skips keys that exist; finishes the wait, or leaves it at the next missing key.
  void advance(Connection connection);
  void wake(const std::string& key);
  /// `member` has left or is lost: ends the waits for it with an error.
  void fail_waits_for(const Member& member);
  [[nodiscard]] std::optional<StoreReply> why_not_coming(const Member& member,
                                                         const std::string& awaited) const;
  [[nodiscard]] StoreReply late(const PendingWait& wait) const;

  std::size_t max_stored_bytes_;
  std::size_t stored_bytes_ = 0;
  std::unordered_map<std::string, StoreValue> values_;
  std::map<Member, Presence> members_;
  std::set<Member> gone_;  // of these, those that have left or are lost
  std::unordered_map<Connection, Session> sessions_;
  std::set<Connection> informed_;  // have the list of members, and no announcement since
  std::unordered_map<std::string, std::set<Connection>> key_waiters_;  // by the next missing key
  std::map<std::string, Barrier> barriers_;                            // those with waiting members
  std::set<std::pair<Time, Connection>> expiries_;                     // one per wait
  std::vector<Answer> answers_;
};

}  // namespace lockstep
