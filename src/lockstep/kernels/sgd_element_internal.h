// What a step of SGD does to one element; see adam_element_internal.h.
#pragma once

#include <cstddef>

#include "lockstep/kernels/elements.h"
#include "lockstep/kernels/sgd_pass.h"

namespace lockstep {

enum class Momentum { none, first, later };

[[gnu::always_inline]] constexpr Momentum momentum_of(const SgdStep& step) noexcept {
  if (step.momentum == 0) return Momentum::none;
  return step.is_first ? Momentum::first : Momentum::later;
}

/// An SgdStep, rounded to the type that the pass computes in.
template <typename Wide>
struct SgdFactors {
  Wide lr, momentum, undamped, decay;

  [[gnu::always_inline]] constexpr explicit SgdFactors(const SgdStep& step) noexcept
      : lr(static_cast<Wide>(step.lr)),
        momentum(static_cast<Wide>(step.momentum)),
        undamped(static_cast<Wide>(1 - step.dampening)),
        decay(static_cast<Wide>(step.decay)) {}
};

/// Steps element `i` of arrays that do not overlap, except that `new_value` may be an element of
/// `old_values` or `gradients`; see SgdStretch.
template <Momentum Kind, bool Decays, bool Nesterov, typename Stored, typename Wide>
[[gnu::always_inline]] constexpr void sgd_element(Stored& new_value, const Stored* old_values,
                                                  const Stored* gradients, Wide* __restrict momenta,
                                                  Wide* __restrict masters, std::size_t i,
                                                  const SgdFactors<Wide>& f) noexcept {
  Wide value = read_value(old_values[i], masters, i);
  Wide gradient = widened(gradients[i]);
  if constexpr (Decays) gradient = gradient + value * f.decay;
  if constexpr (Kind != Momentum::none) {
    Wide moved = gradient;
    if constexpr (Kind == Momentum::later) moved = momenta[i] * f.momentum + gradient * f.undamped;
    momenta[i] = moved;
    gradient = Nesterov ? gradient + moved * f.momentum : moved;
  }
  value = value - gradient * f.lr;
  write_value(new_value, masters, i, value);
}

}  // namespace lockstep
