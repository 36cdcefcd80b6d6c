// A strict parser of safetensors headers: everything that the format's specification forbids is
// refused, even if the reference implementation accepts it (docs/safetensors.md lists these cases).
// Safe for untrusted bytes: all numbers are validated before the caller gets them.
// Words: a file is 8 bytes of length N, N bytes of JSON (the header), then the data. Offsets count
// from the start of the data. This file neither opens files nor reads the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The dtypes of safetensors 0.8.0, in its order: the reference writer puts later ones first.
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

/// The name in files, such as "F32" or "BOOL".
[[nodiscard]] std::string_view safetensors_dtype_name(SafetensorsDtype dtype) noexcept;

/// Bits per element: 4 to 64, not always a multiple of 8.
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
  // Invariant: the first tensor begins at 0, each other one where the previous ends, and the last
  // ends where the data ends. Empty tensors at the same offset are in the order of their names.
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // the offset of the data in the file
};

/// The length N of the JSON, from the file's first 8 bytes (fewer only if the file has fewer).
/// Throws UsageError if N is above 100,000,000 or exceeds the file. Otherwise it is safe to
/// allocate N bytes.
[[nodiscard]] std::uint64_t safetensors_header_length(std::span<const std::byte> first_bytes,
                                                      std::uint64_t file_bytes);

/// Parses the JSON of a file that has `data_bytes` after it.
/// Throws UsageError with the tensor's name and what was expected and found. Memory use depends on
/// the size of the JSON, never on a number that it claims.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> json,
                                                         std::uint64_t data_bytes);

/// Both steps for a file in memory.
[[nodiscard]] SafetensorsHeader parse_safetensors_file(std::span<const std::byte> file);

}  // namespace lockstep
