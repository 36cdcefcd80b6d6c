// Errors of file readers, and reads of numbers from untrusted files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

/// Throws UsageError "<name>, byte <offset>: <reason>". The reason states what was expected and
/// what was found.
[[noreturn]] void refuse(const FileBytes& file, std::uint64_t offset, std::string_view reason);

/// Throws as refuse() does if `file` has fewer than `count` bytes at `offset`; `what` names them.
void require_bytes(const FileBytes& file, std::uint64_t offset, std::uint64_t count,
                   std::string_view what);

/// The little-endian number in the first bytes of `bytes`, which must be large enough. This machine
/// is little-endian.
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
