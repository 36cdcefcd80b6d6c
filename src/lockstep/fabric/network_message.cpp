#include "lockstep/fabric/network_message.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "lockstep/base/assert.h"
#include "lockstep/fabric/network.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers travel little-endian");

class Writer {
 public:
  template <typename Number>
  void number(Number value) {
    static_assert(std::is_arithmetic_v<Number> || std::is_enum_v<Number>);
    bytes(std::as_bytes(std::span(&value, 1)));
  }
  void bytes(std::span<const std::byte> more) {
    written_.insert(written_.end(), more.begin(), more.end());
  }
  [[nodiscard]] std::vector<std::byte> release() { return std::move(written_); }

 private:
  std::vector<std::byte> written_;
};

// Reads past the end give zeros and make the whole invalid.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <typename Number>
  [[nodiscard]] Number number() {
    Number value{};
    const auto read = bytes(sizeof(value));
    if (!read.empty()) std::memcpy(&value, read.data(), sizeof(value));
    return value;
  }
  // A number that must be below `limit`.
  template <typename Enum>
  [[nodiscard]] Enum one_of(int limit) {
    const auto value = number<std::uint8_t>();
    is_valid_ = is_valid_ && value < limit;
    return is_valid_ ? static_cast<Enum>(value) : Enum{};
  }
  [[nodiscard]] bool flag() { return one_of<std::uint8_t>(2) != 0; }
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t count) {
    if (count > left_.size()) is_valid_ = false;
    if (!is_valid_) return {};
    const auto read = left_.first(count);
    left_ = left_.subspan(count);
    return read;
  }
  [[nodiscard]] std::string text(std::size_t limit) {
    const auto length = number<std::uint16_t>();
    is_valid_ = is_valid_ && length <= limit;
    const auto read = bytes(is_valid_ ? length : 0);
    return {reinterpret_cast<const char*>(read.data()), read.size()};
  }
  [[nodiscard]] std::span<const std::byte> rest() { return bytes(left_.size()); }
  void expect(bool holds) { is_valid_ = is_valid_ && holds; }
  [[nodiscard]] bool is_valid() const { return is_valid_; }
  [[nodiscard]] bool is_at_end() const { return is_valid_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool is_valid_ = true;
};

void write_text(Writer& to, std::string_view text, std::size_t limit) {
  const auto cut = text.substr(0, limit);
  to.number(static_cast<std::uint16_t>(cut.size()));
  to.bytes(std::as_bytes(std::span(cut)));
}

void write_record(Writer& to, const CallRecord& record) {
  to.number(record.flags.sum);
  to.number(record.flags.equal);
  to.number(record.flags.any);
  to.number(static_cast<std::uint8_t>(record.flags.absent));
  to.number(record.weight);
  to.number(record.leaves.begin);
  to.number(record.leaves.end);
  for (const auto word : record.memory) to.number(word);
  const auto& descriptor = record.descriptor;
  to.number(descriptor.kind);
  to.number(descriptor.dtype);
  to.number(descriptor.op);
  to.number(static_cast<std::uint8_t>(descriptor.has_flags));
  to.number(static_cast<std::uint8_t>(descriptor.has_leaves));
  to.number(static_cast<std::uint8_t>(descriptor.device));
  to.number(static_cast<std::int32_t>(descriptor.root));
  to.number(descriptor.count);
  to.number(descriptor.owners);
  write_text(to, descriptor.name, kMaxCallName);
}

CallRecord read_record(Reader& from) {
  CallRecord record;
  record.flags.sum = from.number<std::int64_t>();
  record.flags.equal = from.number<std::uint64_t>();
  record.flags.any = from.number<std::uint32_t>();
  record.flags.absent = from.flag();
  record.weight = from.number<std::int64_t>();
  record.leaves.begin = from.number<std::int64_t>();
  record.leaves.end = from.number<std::int64_t>();
  for (auto& word : record.memory) word = from.number<std::uint64_t>();
  auto& descriptor = record.descriptor;
  descriptor.kind = from.one_of<Collective>(kNumCollectives);
  descriptor.dtype = from.one_of<DType>(kNumDTypes);
  descriptor.op = from.one_of<ReduceOp>(kNumReduceOps);
  descriptor.has_flags = from.flag();
  descriptor.has_leaves = from.flag();
  descriptor.device = from.one_of<DeviceKind>(2);
  descriptor.root = from.number<std::int32_t>();
  descriptor.count = from.number<std::int64_t>();
  descriptor.owners = from.number<std::uint64_t>();
  const auto name = from.text(kMaxCallName);
  from.expect(name.find('\0') == std::string::npos);
  std::copy(name.begin(), name.end(), descriptor.name);
  return record;
}

// Of a message of kind host_entered.
NetworkMessage read_header(Reader& from) {
  const auto origin = from.number<std::int32_t>();
  const auto bytes = from.bytes(from.number<std::uint16_t>());
  const bool is_entered =
      !bytes.empty() && bytes.front() == static_cast<std::byte>(NetworkMessage::Kind::entered);
  auto header = is_entered ? try_decode(bytes) : std::nullopt;
  from.expect(header.has_value());
  if (!header) return {};
  header->origin = origin;
  return *std::move(header);
}

}  // namespace

std::vector<std::byte> encode(const NetworkMessage& message) {
  Writer to;
  to.number(message.kind);
  using Kind = NetworkMessage::Kind;
  switch (message.kind) {
    case Kind::entered:
      to.number(message.number);
      to.number(message.signature);
      to.number(message.completed);
      write_record(to, message.record);
      to.bytes(message.bytes);
      break;
    case Kind::standing:
      to.number(static_cast<std::uint8_t>(message.standing));
      to.number(message.completed);
      break;
    case Kind::relayed:
      to.number(static_cast<std::int32_t>(message.origin));
      to.bytes(message.bytes);
      break;
    case Kind::lost:
      write_text(to, message.cause.text, kMaxCauseBytes);
      break;
    case Kind::failed:
      to.number(static_cast<std::int32_t>(message.cause.culprit));
      to.number(message.completed);
      write_text(to, message.cause.text, kMaxCauseBytes);
      break;
    case Kind::offer:
      to.number(message.number);
      to.number(static_cast<std::int32_t>(message.message.tag));
      to.number(message.message.dtype);
      to.number(message.message.count);
      to.number(static_cast<std::uint8_t>(message.is_inline));
      to.bytes(message.bytes);
      break;
    case Kind::answer:
      to.number(message.number);
      to.number(static_cast<std::uint8_t>(message.accepted));
      break;
    case Kind::completed:
    case Kind::waits:
    case Kind::claim:
    case Kind::phases:
      to.number(message.number);
      break;
    case Kind::host_entered:
      for (const auto& header : message.headers) {
        const auto bytes = encode(header);
        to.number(static_cast<std::int32_t>(header.origin));
        to.number(static_cast<std::uint16_t>(bytes.size()));
        to.bytes(bytes);
      }
      break;
  }
  return to.release();
}

std::optional<NetworkMessage> try_decode(std::span<const std::byte> bytes) {
  Reader from(bytes);
  NetworkMessage message;
  using Kind = NetworkMessage::Kind;
  const auto kind = from.number<std::uint8_t>();
  if (kind < 1 || kind > static_cast<std::uint8_t>(Kind::host_entered)) return std::nullopt;
  message.kind = static_cast<Kind>(kind);
  if (message.kind < Kind::relayed && message.kind != Kind::standing &&
      message.kind != Kind::failed) {
    message.number = from.number<std::uint64_t>();
  }
  switch (message.kind) {
    case Kind::entered:
      message.signature = from.number<std::uint64_t>();
      message.completed = from.number<std::uint64_t>();
      message.record = read_record(from);
      message.record.number = message.number;
      message.bytes = from.rest();
      break;
    case Kind::standing:
      message.standing = from.one_of<Standing>(static_cast<int>(Standing::failed));
      message.completed = from.number<std::uint64_t>();
      break;
    case Kind::relayed:
      message.origin = from.number<std::int32_t>();
      message.bytes = from.rest();
      break;
    case Kind::lost:
      message.cause.text = from.text(kMaxCauseBytes);
      break;
    case Kind::failed:
      message.cause.culprit = from.number<std::int32_t>();
      message.completed = from.number<std::uint64_t>();
      message.cause.text = from.text(kMaxCauseBytes);
      break;
    case Kind::offer:
      message.message.tag = from.number<std::int32_t>();
      message.message.dtype = from.one_of<DType>(kNumDTypes);
      message.message.count = from.number<std::int64_t>();
      message.is_inline = from.flag();
      message.bytes = from.rest();
      from.expect(message.message.count >= 0 &&
                  message.message.count <= std::int64_t{1} << 46);  // mappable addresses
      from.expect(message.bytes.size() == (message.is_inline
                                               ? static_cast<std::size_t>(message.message.count) *
                                                     bytes_of(message.message.dtype)
                                               : 0));
      break;
    case Kind::answer:
      message.accepted = from.flag();
      break;
    case Kind::completed:
    case Kind::waits:
    case Kind::claim:
    case Kind::phases:
      break;
    case Kind::host_entered:
      do {
        message.headers.push_back(read_header(from));
      } while (from.is_valid() && !from.is_at_end());
      break;
  }
  from.expect(message.bytes.size() <=
              (message.kind == Kind::relayed ? kMaxMessageBytes : kMaxInlineMessageBytes));
  if (!from.is_at_end()) return std::nullopt;
  return message;
}

}  // namespace lockstep
