// For tests: the 16-bit formats by their definition, independent of half.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep::oracle {

// A 16-bit format by its parameters. Double represents every value of the format exactly.
struct HalfFormat {
  int fraction_bits = 10;
  int bias = 15;

  [[nodiscard]] double decode(std::uint16_t bits) const {
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent_bits = 15 - fraction_bits;
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) {
      return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::quiet_NaN();
    }
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }

  // The nearest value, ties to even; for NaN, any NaN.
  [[nodiscard]] std::uint16_t encode(double value) const {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const int top = (1 << (15 - fraction_bits)) - 1;
    const auto infinity = static_cast<std::uint16_t>(top << fraction_bits);
    if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1);
    const double magnitude = std::fabs(value);
    if (magnitude == 0) return sign;
    if (std::isinf(magnitude)) return sign | infinity;
    const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
    // In units of the last place; nearbyint rounds halves to even.
    const double units = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
    const double encoded = units + std::ldexp(exponent + bias - 1, fraction_bits);
    return encoded >= infinity ? sign | infinity
                               : static_cast<std::uint16_t>(sign | static_cast<int>(encoded));
  }
};
constexpr HalfFormat kFloat16{10, 15};
constexpr HalfFormat kBFloat16{7, 127};

}  // namespace lockstep::oracle
