// The element types of data files, and a view of an array in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class ElementType { boolean, u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64 };

/// The name in numpy and torch: "uint8", "float32" and so on.
[[nodiscard]] std::string_view element_type_name(ElementType type) noexcept;

/// Bytes of one element: 1 to 8.
[[nodiscard]] std::uint64_t element_type_bytes(ElementType type) noexcept;

/// Elements in row-major order, little-endian. The bytes are borrowed from a reader and may be
/// unaligned.
struct Array {
  ElementType type = ElementType::u8;
  std::vector<std::uint64_t> shape;  // empty for a scalar
  std::span<const std::byte> bytes;
};

/// The size of an array in bytes; empty if it is 2^63 or more.
[[nodiscard]] std::optional<std::uint64_t> try_array_bytes(std::span<const std::uint64_t> shape,
                                                           ElementType type) noexcept;

/// "float32[60000, 28, 28]"; a scalar is "float32[]".
[[nodiscard]] std::string array_words(ElementType type, std::span<const std::uint64_t> shape);

}  // namespace lockstep
