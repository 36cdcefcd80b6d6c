// The note of an element (noted_loops.h).
#pragma once

#include <bit>
#include <cstdint>

#include "lockstep/kernels/elements.h"

namespace lockstep {

// The exponent field of a floating-point type, whose elements are read as unsigned words.
template <typename Word>
struct Exponent {
  Word mask;
  Word lowest;

  [[nodiscard, gnu::always_inline]] constexpr Word note(Word bits) const noexcept {
    return static_cast<Word>(static_cast<Word>(bits & mask) + lowest);
  }
  [[nodiscard, gnu::always_inline]] constexpr bool is_full(Word notes) const noexcept {
    return (notes & static_cast<Word>(mask + lowest)) != 0;
  }
};

template <typename Stored>
struct FloatBits;
template <>
struct FloatBits<float> {
  using Word = std::uint32_t;
  static constexpr Exponent<Word> kExponent{0x7F800000U, 0x00800000U};
};
template <>
struct FloatBits<double> {
  using Word = std::uint64_t;
  static constexpr Exponent<Word> kExponent{0x7FF0000000000000U, 0x0010000000000000U};
};
template <>
struct FloatBits<Float16> {
  using Word = std::uint16_t;
  static constexpr Exponent<Word> kExponent{0x7C00U, 0x0400U};
};
template <>
struct FloatBits<BFloat16> {
  using Word = std::uint16_t;
  static constexpr Exponent<Word> kExponent{0x7F80U, 0x0080U};
};

template <typename Stored>
[[gnu::always_inline]] constexpr typename FloatBits<Stored>::Word note_of(Stored value) noexcept {
  constexpr auto exponent = FloatBits<Stored>::kExponent;  // a copy: device code sees no statics
  return exponent.note(std::bit_cast<typename FloatBits<Stored>::Word>(value));
}

}  // namespace lockstep
