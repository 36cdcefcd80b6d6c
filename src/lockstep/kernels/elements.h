// The element types of loops over memory: how each is stored, and in which type loops compute with
// it. All functions here are always inlined (dispatch.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/base/half.h"

namespace lockstep {

/// Loops compute with double as double, with every other type as float.
template <typename Stored>
using WideOf = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

[[gnu::always_inline]] constexpr float widened(float value) noexcept { return value; }
[[gnu::always_inline]] constexpr double widened(double value) noexcept { return value; }
[[gnu::always_inline]] constexpr float widened(Float16 value) noexcept {
  return widen_float16(static_cast<std::uint16_t>(value));
}
[[gnu::always_inline]] constexpr float widened(BFloat16 value) noexcept {
  return widen_bfloat16(static_cast<std::uint16_t>(value));
}

/// Rounded once, to nearest even.
template <typename Stored>
[[gnu::always_inline]] constexpr Stored narrowed(WideOf<Stored> value) noexcept {
  if constexpr (std::is_same_v<Stored, Float16>) {
    return static_cast<Float16>(narrow_to_float16(value));
  } else if constexpr (std::is_same_v<Stored, BFloat16>) {
    return static_cast<BFloat16>(narrow_to_bfloat16(value));
  } else {
    return value;
  }
}

// A parameter stored in 16 bits has a master copy in float, which the optimizer updates. If the
// stored value differs from the rounded master, the user has assigned it since the last step: it
// becomes the new master. `masters` is null for wider types.
template <typename Stored>
[[gnu::always_inline]] constexpr WideOf<Stored> read_value(Stored value,
                                                           const WideOf<Stored>* masters,
                                                           std::size_t i) noexcept {
  if constexpr (std::is_same_v<Stored, WideOf<Stored>>) {
    return value;
  } else {
    return narrowed<Stored>(masters[i]) == value ? masters[i] : widened(value);
  }
}

template <typename Stored>
[[gnu::always_inline]] constexpr void write_value(Stored& value, WideOf<Stored>* masters,
                                                  std::size_t i, WideOf<Stored> stepped) noexcept {
  if constexpr (!std::is_same_v<Stored, WideOf<Stored>>) masters[i] = stepped;
  value = narrowed<Stored>(stepped);
}

}  // namespace lockstep
