#include "lockstep/rendezvous/store_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Writer and Reader process the same fields in the same order, so the one list of fields per
// message, in `fields` below, is its schema. Both check the same limits.

void expect_size(std::string_view what, std::size_t size, std::size_t least, std::size_t most) {
  if (size >= least && size <= most) return;
  throw UsageError(fmt::format("a message of the store has {} of size {}; the limits are {} to {}",
                               what, size, least, most));
}

void expect_ascending(std::span<const Member> members) {
  const auto wrong = std::adjacent_find(members.begin(), members.end(), std::greater_equal<>{});
  if (wrong == members.end()) return;
  throw UsageError(fmt::format("a barrier's members are not in ascending order: {} follows {}",
                               to_string(*(wrong + 1)), to_string(*wrong)));
}

// Consecutive members of one kind.
struct MemberRange {
  Member first;
  int last = 0;
};

std::vector<MemberRange> ranges_of(std::span<const Member> members) {
  std::vector<MemberRange> ranges;
  for (const auto& member : members) {
    const bool continues = !ranges.empty() && ranges.back().first.kind == member.kind &&
                           ranges.back().last == member.number - 1;
    if (continues) {
      ++ranges.back().last;
    } else {
      ranges.push_back({member, member.number});
    }
  }
  return ranges;
}

// The reverse. Throws for ranges that ranges_of() does not produce.
std::vector<Member> members_of(std::span<const MemberRange> ranges) {
  std::vector<Member> members;
  for (const auto& range : ranges) {
    const bool follows =
        members.empty() || members.back().kind < range.first.kind ||
        (members.back().kind == range.first.kind && members.back().number < range.first.number - 1);
    if (!follows) {
      throw UsageError(fmt::format("a barrier's ranges of members are not in order: {} follows {}",
                                   to_string(range.first), to_string(members.back())));
    }
    for (int number = range.first.number; number <= range.last; ++number) {
      members.push_back({range.first.kind, number});
    }
  }
  return members;
}

class Writer {
 public:
  template <typename T>
  using Field = const T;

  template <std::integral T>
  void number(T value, T least, T most) {
    if (value < least || value > most) {
      throw UsageError(
          fmt::format("a message of the store has the number {}, which is not from {} to {}", value,
                      least, most));
    }
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(bits) >> (8 * i)));
    }
  }

  void text(const std::string& value, std::string_view what, std::size_t least, std::size_t most) {
    blob(std::as_bytes(std::span(value)), what, least, most);
  }

  void value(const StoreValue& value) { blob(value, "a value", 0, kMaxValueBytes); }

  template <typename T, typename Each>
  void optional(const std::optional<T>& value, const Each& each) {
    number<std::uint8_t>(value ? 1 : 0, 0, 1);
    if (value) each(*value);
  }

  template <typename T, typename Each>
  void list(const std::vector<T>& values, std::string_view what, std::size_t least,
            std::size_t most, const Each& each) {
    expect_size(what, values.size(), least, most);
    length(values.size());
    for (const auto& value : values) each(value);
  }

  [[nodiscard]] std::vector<std::byte> release() { return std::move(bytes_); }

 private:
  void length(std::size_t size) { number<std::uint32_t>(static_cast<std::uint32_t>(size), 0, ~0u); }

  void blob(std::span<const std::byte> content, std::string_view what, std::size_t least,
            std::size_t most) {
    expect_size(what, content.size(), least, most);
    length(content.size());
    bytes_.insert(bytes_.end(), content.begin(), content.end());
  }

  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  template <typename T>
  using Field = T;

  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes), size_(bytes.size()) {}

  template <std::integral T>
  void number(T& value, T least, T most) {
    std::uint64_t bits = 0;
    const auto content = read(sizeof(T));
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bits |= std::to_integer<std::uint64_t>(content[i]) << (8 * i);
    }
    value = static_cast<T>(static_cast<std::make_unsigned_t<T>>(bits));
    if (value < least || value > most) {
      fail(fmt::format("the number {} is not from {} to {}", value, least, most));
    }
  }

  void text(std::string& value, std::string_view what, std::size_t least, std::size_t most) {
    const auto content = read(length(what, least, most));
    value.assign(reinterpret_cast<const char*>(content.data()), content.size());
  }

  void value(StoreValue& value) {
    const auto content = read(length("a value", 0, kMaxValueBytes));
    value.assign(content.begin(), content.end());
  }

  template <typename T, typename Each>
  void optional(std::optional<T>& value, const Each& each) {
    std::uint8_t present = 0;
    number<std::uint8_t>(present, 0, 1);
    if (present == 1) each(value.emplace());
  }

  // Grows item by item: a count that is larger than the bytes allow fails at the first missing
  // item.
  template <typename T, typename Each>
  void list(std::vector<T>& values, std::string_view what, std::size_t least, std::size_t most,
            const Each& each) {
    for (auto left = length(what, least, most); left > 0; --left) each(values.emplace_back());
  }

  void expect_end() const {
    if (!rest_.empty()) fail(fmt::format("{} bytes follow the end of the message", rest_.size()));
  }

 private:
  std::size_t length(std::string_view what, std::size_t least, std::size_t most) {
    std::uint32_t size = 0;
    number<std::uint32_t>(size, 0, ~0u);
    if (size < least || size > most) {
      fail(
          fmt::format("it has {} of size {}, which is not from {} to {}", what, size, least, most));
    }
    return size;
  }

  std::span<const std::byte> read(std::size_t size) {
    if (size > rest_.size()) fail(fmt::format("{} bytes are missing", size - rest_.size()));
    const auto content = rest_.first(size);
    rest_ = rest_.subspan(size);
    return content;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(
        fmt::format("{} bytes are not a valid message of the store: at byte {}, {}: start all "
                    "processes of the job with the same version of lockstep",
                    size_, size_ - rest_.size(), what));
  }

  std::span<const std::byte> rest_;
  std::size_t size_;
};

template <typename Io, typename T>
using Field = typename Io::template Field<T>;

template <typename Io>
void key(Io& io, Field<Io, std::string>& key) {
  io.text(key, "a key", 1, kMaxKeyBytes);
}

template <typename Io, typename Enum>
void enumeration(Io& io, Enum& value, std::remove_const_t<Enum> last) {
  using Number = std::underlying_type_t<std::remove_const_t<Enum>>;
  auto number = static_cast<Number>(value);
  io.template number<Number>(number, 0, static_cast<Number>(last));
  if constexpr (!std::is_const_v<Enum>) value = static_cast<Enum>(number);
}

template <typename Io>
void member(Io& io, Field<Io, Member>& member) {
  enumeration(io, member.kind, MemberKind::node);
  io.template number<int>(member.number, 0, kMaxMembers - 1);
}

template <typename Io>
void limit(Io& io, Field<Io, std::chrono::milliseconds>& limit) {
  std::int64_t count = limit.count();
  io.template number<std::int64_t>(count, 0, kLongestWait.count());
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(limit)>>) {
    limit = std::chrono::milliseconds(count);
  }
}

template <typename Io>
void explanation(Io& io, Field<Io, std::string>& text) {
  io.text(text, "an explanation", 0, kMaxTextBytes);
}

template <typename Io>
void optional_value(Io& io, Field<Io, std::optional<StoreValue>>& value) {
  io.optional(value, [&](auto& content) { io.value(content); });
}

template <typename Io>
void optional_member(Io& io, Field<Io, std::optional<Member>>& from) {
  io.optional(from, [&](auto& content) { member(io, content); });
}

template <typename Io>
void fields(Io& io, Field<Io, request::Hello>& message) {
  member(io, message.member);
}
template <typename Io>
void fields(Io& io, Field<Io, request::Set>& message) {
  key(io, message.key);
  io.value(message.value);
}
template <typename Io>
void fields(Io& io, Field<Io, request::Get>& message) {
  key(io, message.key);
  optional_member(io, message.from);
  limit(io, message.limit);
}
template <typename Io>
void fields(Io& io, Field<Io, request::TryGet>& message) {
  key(io, message.key);
}
template <typename Io>
void fields(Io& io, Field<Io, request::Add>& message) {
  key(io, message.key);
  io.template number<std::int64_t>(message.amount, INT64_MIN, INT64_MAX);
}
template <typename Io>
void fields(Io& io, Field<Io, request::CompareExchange>& message) {
  key(io, message.key);
  optional_value(io, message.expected);
  io.value(message.desired);
  expect_size("the two values of a compare-exchange",
              message.desired.size() + (message.expected ? message.expected->size() : 0), 0,
              kMaxValueBytes);
}
template <typename Io>
void fields(Io& io, Field<Io, request::Remove>& message) {
  key(io, message.key);
}
template <typename Io>
void fields(Io& io, Field<Io, request::Wait>& message) {
  io.list(message.keys, "a list of keys", 1, kMaxKeysPerWait, [&](auto& each) { key(io, each); });
  optional_member(io, message.from);
  limit(io, message.limit);
}
template <typename Io>
void fields(Io& io, Field<Io, request::Barrier>& message) {
  key(io, message.name);
  constexpr bool kWrites = std::is_const_v<std::remove_reference_t<decltype(message)>>;
  std::vector<MemberRange> ranges;
  if constexpr (kWrites) {
    expect_ascending(message.members);
    ranges = ranges_of(message.members);
  }
  io.list(ranges, "a list of ranges", 1, 2u * kMaxMembers, [&](auto& each) {
    member(io, each.first);
    io.template number<int>(each.last, each.first.number, kMaxMembers - 1);
  });
  if constexpr (!kWrites) message.members = members_of(ranges);
  limit(io, message.limit);
}
template <typename Io>
void fields(Io& /*io*/, Field<Io, request::ListMembers>& /*message*/) {}
template <typename Io>
void fields(Io& /*io*/, Field<Io, request::Goodbye>& /*message*/) {}

template <typename Io>
void fields(Io& /*io*/, Field<Io, reply::Done>& /*message*/) {}
template <typename Io>
void fields(Io& io, Field<Io, reply::Value>& message) {
  optional_value(io, message.value);
}
template <typename Io>
void fields(Io& io, Field<Io, reply::Number>& message) {
  io.template number<std::int64_t>(message.number, INT64_MIN, INT64_MAX);
}
template <typename Io>
void fields(Io& io, Field<Io, reply::Exchanged>& message) {
  io.template number<std::uint8_t>(message.happened, 0, 1);
  optional_value(io, message.before);
}
template <typename Io>
void fields(Io& io, Field<Io, reply::Members>& message) {
  io.list(message.members, "a list of members", 0, 2u * kMaxMembers, [&](auto& each) {
    member(io, each.member);
    enumeration(io, each.state, MemberState::lost);
  });
}
template <typename Io>
void fields(Io& /*io*/, Field<Io, reply::MembersChanged>& /*message*/) {}
template <typename Io>
void fields(Io& io, Field<Io, reply::Refused>& message) {
  explanation(io, message.text);
}
template <typename Io>
void fields(Io& io, Field<Io, reply::PeerFailed>& message) {
  member(io, message.member);
  explanation(io, message.text);
}
template <typename Io>
void fields(Io& io, Field<Io, reply::TimedOut>& message) {
  explanation(io, message.text);
}

template <typename Variant>
constexpr auto kLastKind = static_cast<std::uint8_t>(std::variant_size_v<Variant> - 1);

template <typename Variant>
std::vector<std::byte> encode_any(std::uint64_t id, const Variant& message) {
  Writer writer;
  writer.number<std::uint64_t>(id, 0, ~std::uint64_t{0});
  writer.number<std::uint8_t>(static_cast<std::uint8_t>(message.index()), 0, kLastKind<Variant>);
  std::visit([&](const auto& each) { fields(writer, each); }, message);
  return writer.release();
}

// A default value of the variant's alternative number `kind`.
template <typename Variant, std::size_t... kIndex>
Variant make_kind(std::size_t kind, std::index_sequence<kIndex...> /*all*/) {
  Variant result;
  ((kind == kIndex ? static_cast<void>(result.template emplace<kIndex>()) : void()), ...);
  return result;
}

template <typename Variant>
void decode_any(std::span<const std::byte> bytes, std::uint64_t& id, Variant& message) {
  Reader reader(bytes);
  reader.number<std::uint64_t>(id, 0, ~std::uint64_t{0});
  std::uint8_t kind = 0;
  reader.number<std::uint8_t>(kind, 0, kLastKind<Variant>);
  message = make_kind<Variant>(kind, std::make_index_sequence<std::variant_size_v<Variant>>{});
  std::visit([&](auto& each) { fields(reader, each); }, message);
  reader.expect_end();
}

}  // namespace

std::vector<std::byte> encode(const StoreRequestMessage& message) {
  return encode_any(message.id, message.request);
}

std::vector<std::byte> encode(const StoreReplyMessage& message) {
  return encode_any(message.id, message.reply);
}

StoreRequestMessage decode_request(std::span<const std::byte> bytes) {
  StoreRequestMessage message;
  decode_any(bytes, message.id, message.request);
  return message;
}

StoreReplyMessage decode_reply(std::span<const std::byte> bytes) {
  StoreReplyMessage message;
  decode_any(bytes, message.id, message.reply);
  return message;
}

}  // namespace lockstep
