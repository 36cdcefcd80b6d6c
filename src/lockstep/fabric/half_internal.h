// The two 16-bit floating-point formats as their bits, and their exact way to float and back. One
// rounding, to nearest even; NaN stays NaN and quiet.
//
// Without branches, and for one number as for a vector of them: U is std::uint32_t or a vector of
// it, F the float or vector of floats of the same shape. Where F is a vector, ?: chooses lane by
// lane.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

template <typename F, typename U>
F widen_bfloat16(U bits) noexcept {
  return std::bit_cast<F>(bits << 16);
}

template <typename U, typename F>
U narrow_to_bfloat16(F value) noexcept {
  const auto bits = std::bit_cast<U>(value);
  const U rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const U quiet = (bits >> 16) | 0x40U;
  return (bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded;
}

// The exponent is moved by a multiplication with a power of two, which is exact and normalises
// subnormal halves.
template <typename F, typename U>
F widen_float16(U bits) noexcept {
  const U sign = (bits & 0x8000U) << 16;
  const U rest = (bits & 0x7FFFU) << 13;
  // 2^112 turns the half's exponent bias of 15 into the float's of 127.
  const F scaled = std::bit_cast<F>(rest) * 0x1p112F;
  const U special = rest | 0x7F800000U;  // infinity and NaN keep their payload
  return std::bit_cast<F>(sign | (rest >= 0x0F800000U ? special : std::bit_cast<U>(scaled)));
}

template <typename U, typename F>
U narrow_to_float16(F value) noexcept {
  const auto bits = std::bit_cast<U>(value);
  const U magnitude = bits & 0x7FFFFFFFU;
  // Normal halves: rounded at 13 bits, with the exponent moved by 112.
  const U normal = (magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  // Subnormal halves: adding 0.5 makes the float's own addition round at the half's last bit.
  const F shifted = std::bit_cast<F>(magnitude) + 0.5F;
  const U subnormal = std::bit_cast<U>(shifted) - 0x3F000000U;
  const U finite = magnitude < (113U << 23) ? subnormal : normal;
  const U nan = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  const U infinity = (magnitude & 0U) | 0x7C00U;
  const U beyond = magnitude > 0x7F800000U ? nan : infinity;
  return ((bits >> 16) & 0x8000U) | (magnitude >= (143U << 23) ? beyond : finite);
}

}  // namespace lockstep
