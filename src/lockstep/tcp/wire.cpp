#include "lockstep/tcp/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers travel little-endian");

// The layouts, without padding.
struct HelloLayout {
  std::int32_t rank = 0;
  std::uint32_t kind = 0;
};
static_assert(sizeof(HelloLayout) == 8);
// The kind, from its lowest bit on: connection 8 bits, encrypts 8, stripe 8, number of stripes 8.
constexpr unsigned kEncryptsBit = 8;
constexpr unsigned kStripeBit = 16;
constexpr unsigned kNumStripesBit = 24;

struct HeaderLayout {
  std::uint64_t end = 0;
  std::uint64_t number = 0;
  std::uint64_t offset = 0;
  std::uint32_t part = 0;
  std::uint32_t length = 0;
  std::array<std::uint32_t, 3> checksums = {};
  std::uint32_t own_checksum = 0;  // of all bytes before it
};
static_assert(sizeof(HeaderLayout) == kDataHeaderBytes);

}  // namespace

std::vector<std::byte> encode(const Hello& hello) {
  const HelloLayout layout{.rank = hello.rank,
                           .kind = static_cast<std::uint32_t>(hello.kind) |
                                   std::uint32_t{hello.encrypts} << kEncryptsBit |
                                   static_cast<std::uint32_t>(hello.stripe) << kStripeBit |
                                   static_cast<std::uint32_t>(hello.num_stripes) << kNumStripesBit};
  const auto bytes = std::as_bytes(std::span(&layout, 1));
  return {bytes.begin(), bytes.end()};
}

std::optional<Hello> try_decode_hello(std::span<const std::byte> bytes) {
  HelloLayout layout;
  if (bytes.size() != sizeof(layout)) return std::nullopt;
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  const auto field = [&](unsigned bit) { return static_cast<int>(layout.kind >> bit & 0xFF); };
  const Hello hello{.kind = static_cast<ConnectionKind>(field(0)),
                    .rank = layout.rank,
                    .encrypts = field(kEncryptsBit) == 1,
                    .stripe = field(kStripeBit),
                    .num_stripes = field(kNumStripesBit)};
  const bool is_data = hello.kind == ConnectionKind::data;
  if ((!is_data && hello.kind != ConnectionKind::messages) || field(kEncryptsBit) > 1 ||
      hello.num_stripes < 1 || hello.num_stripes > kMaxStripes ||
      hello.stripe >= (is_data ? hello.num_stripes : 1) || hello.rank < 0) {
    return std::nullopt;
  }
  return hello;
}

DataHeaderBytes encode(const DataHeader& header) noexcept {
  HeaderLayout layout{.end = header.end,
                      .number = header.key.number,
                      .offset = header.offset,
                      .part = header.key.part,
                      .length = header.length,
                      .checksums = header.checksums};
  DataHeaderBytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  const auto checksum = crc32c(std::span(bytes).first(offsetof(HeaderLayout, own_checksum)));
  std::memcpy(bytes.data() + offsetof(HeaderLayout, own_checksum), &checksum, sizeof(checksum));
  return bytes;
}

std::optional<DataHeader> try_decode_header(
    std::span<const std::byte, kDataHeaderBytes> bytes) noexcept {
  HeaderLayout layout;
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  const auto checksum = crc32c(bytes.first(offsetof(HeaderLayout, own_checksum)));
  if (layout.own_checksum != checksum || layout.length > kMaxDataBytes) return std::nullopt;
  return DataHeader{.end = layout.end,
                    .key = {layout.number, layout.part},
                    .offset = layout.offset,
                    .length = layout.length,
                    .checksums = layout.checksums};
}

std::string to_string(const RankAddress& address) {
  std::string endpoints;
  for (const auto& each : address.endpoints) {
    endpoints += (endpoints.empty() ? "" : ",") + each.to_string();
  }
  return fmt::format("{} {} {} {} {}", endpoints, address.token, address.end,
                     address.process.process, address.process.started);
}

RankAddress parse_rank_address(const std::string& text) {
  const auto first = text.find(' ');
  const auto second = first == std::string::npos ? first : text.find(' ', first + 1);
  RankAddress address;
  if (second != std::string::npos) {
    for (std::size_t begin = 0; begin < first;) {
      const auto comma = std::min(text.find(',', begin), first);
      address.endpoints.push_back(
          Endpoint::parse(std::string_view(text).substr(begin, comma - begin)));
      begin = comma + 1;
    }
    address.token = text.substr(first + 1, second - first - 1);
    const char* position = text.data() + second;
    const auto* const end = text.data() + text.size();
    const auto read = [&](auto& number) {
      if (position == end || *position != ' ') return false;
      const auto [rest, error] = std::from_chars(position + 1, end, number);
      position = rest;
      return error == std::errc();
    };
    if (read(address.end) && read(address.process.process) && read(address.process.started) &&
        position == end && !address.endpoints.empty()) {
      return address;
    }
  }
  throw UsageError(
      fmt::format("{} is not the address of a rank: start all ranks with the same backend and the "
                  "same lockstep",
                  in_quotes(text)));
}

}  // namespace lockstep
