// How one element is widened, combined and narrowed in a reduction: the same functions on the host
// and on a GPU, so that results are bit-identical.
#pragma once

#include <cstdint>

#include "lockstep/base/half.h"

namespace lockstep {

// The type of elements in memory (Stored), and the type they are reduced in (Wide).
template <typename T>
struct Plain {
  using Stored = T;
  using Wide = T;
  [[gnu::always_inline]] static constexpr T widen(T value) noexcept { return value; }
  [[gnu::always_inline]] static constexpr T narrow(T value) noexcept { return value; }
};
struct Boolean {
  using Stored = std::uint8_t;
  using Wide = std::uint8_t;
  [[gnu::always_inline]] static constexpr Wide widen(Stored value) noexcept {
    return value != 0 ? 1 : 0;
  }
  [[gnu::always_inline]] static constexpr Stored narrow(Wide value) noexcept { return value; }
};
struct Half {
  using Stored = std::uint16_t;
  using Wide = float;
  [[gnu::always_inline]] static constexpr float widen(Stored value) noexcept {
    return widen_float16(value);
  }
  [[gnu::always_inline]] static constexpr Stored narrow(float value) noexcept {
    return static_cast<Stored>(narrow_to_float16(value));
  }
};
struct BrainHalf {
  using Stored = std::uint16_t;
  using Wide = float;
  [[gnu::always_inline]] static constexpr float widen(Stored value) noexcept {
    return widen_bfloat16(value);
  }
  [[gnu::always_inline]] static constexpr Stored narrow(float value) noexcept {
    return static_cast<Stored>(narrow_to_bfloat16(value));
  }
};

// Integers are unsigned here, so that they wrap; min and max use the signed type.
struct Sum {
  template <typename T>
  [[gnu::always_inline]] static constexpr T combine(T a, T b) noexcept {
    return static_cast<T>(a + b);
  }
};
struct Product {
  template <typename T>
  [[gnu::always_inline]] static constexpr T combine(T a, T b) noexcept {
    return static_cast<T>(a * b);
  }
};
// a != a is true only for NaN. If b is NaN the comparison is false and the result is b.
struct Min {
  template <typename T>
  [[gnu::always_inline]] static constexpr T combine(T a, T b) noexcept {
    return (a < b || a != a) ? a : b;
  }
};
struct Max {
  template <typename T>
  [[gnu::always_inline]] static constexpr T combine(T a, T b) noexcept {
    return (a > b || a != a) ? a : b;
  }
};

}  // namespace lockstep
