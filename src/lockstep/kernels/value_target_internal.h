// Where a step of an optimizer writes the new values. The loops are compiled for each target,
// because the compiler must know which arrays do not overlap.
#pragma once

#include "lockstep/kernels/caching.h"

namespace lockstep {

enum class ValueTarget {
  in_place,        // over the old values
  elsewhere,       // to memory of their own
  past_caches,     // the same, with streaming stores
  over_gradients,  // each over its gradient
};

template <typename Stretch>
[[gnu::always_inline]] constexpr ValueTarget target_of(const Stretch& stretch) noexcept {
  if (stretch.old_values == nullptr) return ValueTarget::in_place;
  if (stretch.gradients == stretch.values) return ValueTarget::over_gradients;
  return stretch.caching == Caching::past ? ValueTarget::past_caches : ValueTarget::elsewhere;
}

}  // namespace lockstep
