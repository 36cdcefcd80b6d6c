// Reads the header of a safetensors file, strictly: what the format's text forbids is refused, even
// where the reference implementation lets it pass (docs/safetensors.md lists each such case). The
// bytes may come from anyone: they are checked in full before a caller sees a number from them.
// Words: a file is 8 bytes of length N, N bytes of JSON (the header), then the data. Offsets count
// from the start of the data. Nothing here opens a file or touches the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The element types of safetensors 0.8.0, in its order: the reference's writer puts later ones
/// first.
enum class SafetensorsDtype {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

/// The name that files use, such as "F32" or "BOOL".
[[nodiscard]] std::string_view safetensors_dtype_name(SafetensorsDtype dtype) noexcept;

/// Bits of one element: 4 to 64, not always whole bytes.
[[nodiscard]] std::uint64_t safetensors_dtype_bits(SafetensorsDtype dtype) noexcept;

struct SafetensorsEntry {
  std::string name;  // any UTF-8, even path-like or with control characters: never a file name
  SafetensorsDtype dtype = SafetensorsDtype::f32;
  std::vector<std::uint64_t> shape;  // empty for a scalar
  std::uint64_t begin = 0;           // in the data
  std::uint64_t end = 0;             // one past the last byte

  friend bool operator==(const SafetensorsEntry&, const SafetensorsEntry&) = default;
};

struct SafetensorsHeader {
  // Invariant: the first begins at 0, each next where the one before ends, the last where the data
  // ends; empty tensors at one offset stand in the order of their names.
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // where the data begins in the file
};

/// The length N of the JSON, from the file's first 8 bytes (fewer only if the file has fewer).
/// Throws UsageError unless N is at most 100,000,000 and the file has room for it; only then is it
/// safe to allocate N bytes.
[[nodiscard]] std::uint64_t safetensors_header_length(std::span<const std::byte> first_bytes,
                                                      std::uint64_t file_bytes);

/// Reads the JSON of a file that holds `data_bytes` after it.
/// Throws UsageError, naming the tensor with what was expected and found. Memory grows with what
/// the JSON holds, never with a number that it claims.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> json,
                                                         std::uint64_t data_bytes);

/// Both steps for a file that is in memory already.
[[nodiscard]] SafetensorsHeader parse_safetensors_file(std::span<const std::byte> file);

}  // namespace lockstep
