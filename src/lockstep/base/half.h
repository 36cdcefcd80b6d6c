// The two 16-bit floating-point formats as bit patterns, and their conversions from and to float.
// Conversions round once, to nearest even; a NaN becomes a quiet NaN. They have no branches, so
// that compilers vectorize loops over them. They are always inlined, because callers are compiled
// for different instruction sets.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// Element types of memory in these formats.
enum class Float16 : std::uint16_t {};
enum class BFloat16 : std::uint16_t {};

[[gnu::always_inline]] constexpr float widen_bfloat16(std::uint32_t bits) noexcept {
  return std::bit_cast<float>(bits << 16);
}

[[gnu::always_inline]] constexpr std::uint32_t narrow_to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  return (value != value ? bits | 0x400000U : rounded) >> 16;
}

// A multiplication by a power of two moves the exponent; it is exact and normalizes subnormal
// halves.
[[gnu::always_inline]] constexpr float widen_float16(std::uint32_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t rest = (bits & 0x7FFFU) << 13;
  // 2^112 turns the half's exponent bias of 15 into the float's of 127.
  const float scaled = std::bit_cast<float>(rest) * 0x1p112F;
  const std::uint32_t special = rest | 0x7F800000U;  // infinity and NaN keep their payload
  return std::bit_cast<float>(
      sign | (rest >= 0x0F800000U ? special : std::bit_cast<std::uint32_t>(scaled)));
}

[[gnu::always_inline]] constexpr std::uint32_t narrow_to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Normal halves: rounded at 13 bits, with the exponent moved by 112.
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  // Subnormal halves: adding 0.5 makes the float's own addition round at the half's last bit.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U;
  const std::uint32_t finite = magnitude < (113U << 23) ? subnormal : normal;
  const std::uint32_t nan = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  const std::uint32_t beyond = magnitude > 0x7F800000U ? nan : 0x7C00U;
  return ((bits >> 16) & 0x8000U) | (magnitude >= (143U << 23) ? beyond : finite);
}

}  // namespace lockstep
