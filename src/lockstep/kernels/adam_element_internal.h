// What a step of Adam or AdamW does to one element. The loops over host memory (adam_pass.cpp) and
// over device memory (adam_pass.cu) both call this function, so that they are bit-identical.
#pragma once

#include <cmath>
#include <cstddef>

#include "lockstep/kernels/adam_pass.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

/// An AdamStep, rounded to the type that the pass computes in.
template <typename Wide>
struct AdamFactors {
  Wide weight, beta2, new_square, eps, kept, decay, step_size, root_factor;

  [[gnu::always_inline]] constexpr explicit AdamFactors(const AdamStep& step) noexcept
      : weight(static_cast<Wide>(1 - step.beta1)),
        beta2(static_cast<Wide>(step.beta2)),
        new_square(static_cast<Wide>(1 - step.beta2)),
        eps(static_cast<Wide>(step.eps)),
        kept(static_cast<Wide>(step.kept)),
        decay(static_cast<Wide>(step.decay)),
        step_size(static_cast<Wide>(step.step_size)),
        root_factor(static_cast<Wide>(step.root_factor)) {}
};

/// Whether the average moves from the gradient's side: exp_avg.lerp_(gradient, 1 - beta1) of
/// LibTorch starts from the nearer end.
[[gnu::always_inline]] constexpr bool moves_from_gradient(const AdamStep& step) noexcept {
  return 1 - step.beta1 >= 0.5;
}

/// Steps element `i` of arrays that do not overlap, except that `new_value` may be an element of
/// `old_values` or `gradients`; see AdamStretch.
template <bool FromGradient, bool Decays, typename Stored, typename Wide>
[[gnu::always_inline]] constexpr void adam_element(Stored& new_value, const Stored* old_values,
                                                   const Stored* gradients,
                                                   Wide* __restrict averages,
                                                   Wide* __restrict squares,
                                                   Wide* __restrict masters, std::size_t i,
                                                   const AdamFactors<Wide>& f) noexcept {
  Wide value = read_value(old_values[i], masters, i);
  Wide gradient = widened(gradients[i]);
  if constexpr (Decays) gradient = gradient + value * f.decay;
  value = value * f.kept;
  Wide average = averages[i];
  if constexpr (FromGradient) {
    average = gradient - (gradient - average) * (Wide(1) - f.weight);
  } else {
    average = average + (gradient - average) * f.weight;
  }
  const Wide square = squares[i] * f.beta2 + f.new_square * gradient * gradient;
  averages[i] = average;
  squares[i] = square;
  value = value - f.step_size * average / (std::sqrt(square) * f.root_factor + f.eps);
  write_value(new_value, masters, i, value);
}

}  // namespace lockstep
