// How a reader refuses a file, and reads numbers from it before it trusts anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

/// Throws the UsageError that every refusal of a file is: "<name>, byte <offset>: <reason>". The
/// reason says what was expected and what was found.
[[noreturn]] void refuse(const FileBytes& file, std::uint64_t offset, std::string_view reason);

/// Refuses `file` unless `count` bytes lie at `offset`; `what` names them.
void require_bytes(const FileBytes& file, std::uint64_t offset, std::uint64_t count,
                   std::string_view what);

/// The number at the front of `bytes`, which has room for it, in this machine's order: little.
template <typename Number>
[[nodiscard]] Number little_endian(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<Number>);
  Number value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

[[nodiscard]] inline std::uint32_t big_endian_u32(std::span<const std::byte> bytes) {
  return __builtin_bswap32(little_endian<std::uint32_t>(bytes));
}

}  // namespace lockstep
