// bfloat16 as its bits, in forms that become vector code.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

inline float widened(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// To the nearest, ties to even; NaN stays NaN.
inline std::uint16_t narrowed(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  const auto kept = value != value ? (bits | 0x400000) : rounded;
  return static_cast<std::uint16_t>(kept >> 16);
}

}  // namespace lockstep
