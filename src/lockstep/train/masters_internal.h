// The elements of parameters while an optimizer steps. Those stored in bfloat16 have masters in
// float, which go on from where they were unless somebody has changed the value meanwhile.
#pragma once

#include <cstddef>
#include <type_traits>

#include "lockstep/base/half.h"

namespace lockstep {

template <typename Wide, typename Stored>
[[gnu::always_inline]] inline Wide widened(Stored value) noexcept {
  if constexpr (std::is_same_v<Stored, Wide>) {
    return value;
  } else {
    return widen_bfloat16(value);
  }
}

template <typename Stored, typename Wide>
[[gnu::always_inline]] inline Wide read_value(Stored value, const Wide* masters,
                                              std::size_t i) noexcept {
  if constexpr (std::is_same_v<Stored, Wide>) {
    return value;
  } else {
    return narrow_to_bfloat16(masters[i]) == value ? masters[i] : widen_bfloat16(value);
  }
}

template <typename Stored, typename Wide>
[[gnu::always_inline]] inline void write_value(Stored& value, Wide* masters, std::size_t i,
                                               Wide stepped) noexcept {
  if constexpr (std::is_same_v<Stored, Wide>) {
    value = stepped;
  } else {
    masters[i] = stepped;
    value = static_cast<Stored>(narrow_to_bfloat16(stepped));
  }
}

}  // namespace lockstep
