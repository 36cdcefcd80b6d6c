// The two 16-bit floating-point formats as their bits, and their exact way to float and back. One
// rounding, to nearest even; NaN stays NaN and quiet.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

struct Float16 {
  std::uint16_t bits;
};

struct BFloat16 {
  std::uint16_t bits;
};

inline float widen(BFloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Without branches, so that loops over it become vector code.
inline BFloat16 narrow_to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return {static_cast<std::uint16_t>(is_nan ? quiet : rounded)};
}

// The exponent is moved by arithmetic on floats: adding the bias difference and multiplying by a
// power of two are exact, and subnormal halves come out normalised.
inline float widen(Float16 value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(value.bits & 0x7FFFU) << 13;
  // 2^112 turns the half's exponent bias of 15 into the float's of 127.
  const float scaled =
      std::bit_cast<float>(rest) * std::bit_cast<float>(std::uint32_t{(127U + 112U) << 23});
  const std::uint32_t special = rest | 0x7F800000U;  // infinity and NaN keep their payload
  const std::uint32_t magnitude =
      rest >= 0x0F800000U ? special : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(sign | magnitude);
}

inline Float16 narrow_to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Normal halves: the same rounding as above on 13 bits, with the exponent moved by 112.
  const std::uint32_t odd = (magnitude >> 13) & 1U;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + odd) >> 13;
  // Subnormal halves: adding 0.5 makes the float's own addition round at the half's last bit.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U;
  const std::uint32_t finite = magnitude < (113U << 23) ? subnormal : normal;
  const std::uint32_t nan = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  const std::uint32_t overflow = magnitude > 0x7F800000U ? nan : 0x7C00U;
  return {static_cast<std::uint16_t>(sign | (magnitude >= (143U << 23) ? overflow : finite))};
}

}  // namespace lockstep
