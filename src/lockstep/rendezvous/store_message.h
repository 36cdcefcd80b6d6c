// The messages between a Store and its server, as values and as bytes.
//
// A message is: id (8 bytes), kind (1 byte), then the fields of its struct in the order they are
// declared. Integers are little-endian; text and bytes are a length (4 bytes) and the content; an
// optional is 0 or 1 (1 byte) and, for 1, the content; a list is a count (4 bytes) and the items.
// The members of a barrier are a list of ranges, each a first member and the number of the last:
// the ranks of a large job are one range. Every message has exactly one encoding: decoding and
// encoding gives the same bytes. The answer to a request carries the request's id.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/rendezvous/member.h"

namespace lockstep {

constexpr std::size_t kMaxKeyBytes = 8u << 10;
constexpr std::size_t kMaxValueBytes = 8u << 20;
constexpr std::size_t kMaxKeysPerWait = 65536;
constexpr std::size_t kMaxTextBytes = 32u << 10;              // of an answer's explanation
constexpr std::chrono::milliseconds kLongestWait{1LL << 40};  // 35 years

using StoreValue = std::vector<std::byte>;

enum class MemberState : std::uint8_t {
  connected,
  left,  // sent Goodbye
  lost,  // its connection ended without Goodbye
};

struct MemberStatus {
  Member member;
  MemberState state = MemberState::connected;

  friend bool operator==(const MemberStatus&, const MemberStatus&) = default;
};

namespace request {

/// The first request on a connection, and only the first.
struct Hello {
  Member member;
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct Set {
  std::string key;
  StoreValue value;
  friend bool operator==(const Set&, const Set&) = default;
};

/// Answered when the key exists, when `limit` has passed, or when `from` is lost or has left.
struct Get {
  std::string key;
  std::optional<Member> from;
  std::chrono::milliseconds limit{0};
  friend bool operator==(const Get&, const Get&) = default;
};

struct TryGet {
  std::string key;
  friend bool operator==(const TryGet&, const TryGet&) = default;
};

struct Add {
  std::string key;
  std::int64_t amount = 0;
  friend bool operator==(const Add&, const Add&) = default;
};

/// No `expected` means that the key must not exist. Both values together have at most
/// kMaxValueBytes.
struct CompareExchange {
  std::string key;
  std::optional<StoreValue> expected;
  StoreValue desired;
  friend bool operator==(const CompareExchange&, const CompareExchange&) = default;
};

struct Remove {
  std::string key;
  friend bool operator==(const Remove&, const Remove&) = default;
};

/// As Get, for one or more keys, without their values.
struct Wait {
  std::vector<std::string> keys;
  std::optional<Member> from;
  std::chrono::milliseconds limit{0};
  friend bool operator==(const Wait&, const Wait&) = default;
};

/// `members` is not empty, in ascending order and without duplicates.
struct Barrier {
  std::string name;
  std::vector<Member> members;
  std::chrono::milliseconds limit{0};
  friend bool operator==(const Barrier&, const Barrier&) = default;
};

/// Until the next MembersChanged, the answer stays true.
struct ListMembers {
  friend bool operator==(const ListMembers&, const ListMembers&) = default;
};

/// The last request of a connection; it has no answer.
struct Goodbye {
  friend bool operator==(const Goodbye&, const Goodbye&) = default;
};

}  // namespace request

namespace reply {

struct Done {
  friend bool operator==(const Done&, const Done&) = default;
};

/// The answer to Get and TryGet.
struct Value {
  std::optional<StoreValue> value;
  friend bool operator==(const Value&, const Value&) = default;
};

/// The answer to Add (the sum) and Remove (the number of removed keys).
struct Number {
  std::int64_t number = 0;
  friend bool operator==(const Number&, const Number&) = default;
};

/// The value before the exchange, and whether the exchange happened.
struct Exchanged {
  std::uint8_t happened = 0;  // 0 or 1
  std::optional<StoreValue> before;
  friend bool operator==(const Exchanged&, const Exchanged&) = default;
};

struct Members {
  std::vector<MemberStatus> members;
  friend bool operator==(const Members&, const Members&) = default;
};

/// Sent without a request, with id 0, once after each ListMembers: a member has joined, left, or is
/// lost.
struct MembersChanged {
  friend bool operator==(const MembersChanged&, const MembersChanged&) = default;
};

/// The request is invalid.
struct Refused {
  std::string text;
  friend bool operator==(const Refused&, const Refused&) = default;
};

/// `member` is lost, has left, or timed out.
struct PeerFailed {
  Member member;
  std::string text;
  friend bool operator==(const PeerFailed&, const PeerFailed&) = default;
};

struct TimedOut {
  std::string text;
  friend bool operator==(const TimedOut&, const TimedOut&) = default;
};

}  // namespace reply

using StoreRequest =
    std::variant<request::Hello, request::Set, request::Get, request::TryGet, request::Add,
                 request::CompareExchange, request::Remove, request::Wait, request::Barrier,
                 request::ListMembers, request::Goodbye>;

using StoreReply =
    std::variant<reply::Done, reply::Value, reply::Number, reply::Exchanged, reply::Members,
                 reply::Refused, reply::PeerFailed, reply::TimedOut, reply::MembersChanged>;

struct StoreRequestMessage {
  std::uint64_t id = 0;
  StoreRequest request;
  friend bool operator==(const StoreRequestMessage&, const StoreRequestMessage&) = default;
};

struct StoreReplyMessage {
  std::uint64_t id = 0;
  StoreReply reply;
  friend bool operator==(const StoreReplyMessage&, const StoreReplyMessage&) = default;
};

/// Throws UsageError for a message over a limit above: an empty or too long key, a too long value,
/// a list that is not in order.
[[nodiscard]] std::vector<std::byte> encode(const StoreRequestMessage& message);
[[nodiscard]] std::vector<std::byte> encode(const StoreReplyMessage& message);

/// Throws UsageError, with the position and the reason, for bytes that are not a valid message.
/// Allocates at most a few times the size of `bytes`, whatever lengths they claim, and 1 MiB for
/// the members of a barrier.
[[nodiscard]] StoreRequestMessage decode_request(std::span<const std::byte> bytes);
[[nodiscard]] StoreReplyMessage decode_reply(std::span<const std::byte> bytes);

}  // namespace lockstep
