// The exponential function of loops over memory. It has no branches, so that compilers vectorize
// loops that use it.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {
namespace {

// The domain of exponential() is [-kFar, kFar]: exp(z) counts as infinite above it, as 0 below it.
constexpr float kFar = 80.0F;

// e to the power of z for |z| <= kFar, to about two units in the last place: 2^n e^r, where n is
// an integer and |r| <= ln(2) / 2. NaN stays NaN.
[[gnu::always_inline]] inline float exponential(float z) noexcept {
  constexpr float rounder = 0x1.8p23F;  // adding it rounds to an integer; the low bits are n
  const float shifted = z * 1.44269504F + rounder;
  const float n = shifted - rounder;
  const float r = (z - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  float power = 1.0F / 720.0F;  // Taylor's series
  power = power * r + 1.0F / 120.0F;
  power = power * r + 1.0F / 24.0F;
  power = power * r + 1.0F / 6.0F;
  power = power * r + 1.0F / 2.0F;
  power = power * r + 1.0F;
  power = power * r + 1.0F;
  const auto scale = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000U;
  return power * std::bit_cast<float>(scale);
}

}  // namespace
}  // namespace lockstep
