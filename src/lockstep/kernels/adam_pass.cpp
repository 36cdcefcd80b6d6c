#include "lockstep/kernels/adam_pass.h"

#include <cmath>

#include "lockstep/kernels/elements.h"

namespace lockstep {
namespace {

// exp_avg.lerp_(gradient, 1 - beta1) as LibTorch does it: from the nearer end.
template <bool FromGradient, typename Wide>
Wide mixed(Wide average, Wide gradient, Wide weight) noexcept {
  if constexpr (FromGradient) return gradient - (gradient - average) * (Wide(1) - weight);
  return average + (gradient - average) * weight;
}

template <bool FromGradient, bool Decays, typename Stored>
void pass(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept {
  using Wide = WideOf<Stored>;
  const auto weight = static_cast<Wide>(1 - step.beta1);
  const auto beta2 = static_cast<Wide>(step.beta2);
  const auto new_square = static_cast<Wide>(1 - step.beta2);
  const auto epsilon = static_cast<Wide>(step.epsilon);
  const auto kept = static_cast<Wide>(step.kept);
  const auto decay = static_cast<Wide>(step.decay);
  const auto step_size = static_cast<Wide>(step.step_size);
  const auto root_factor = static_cast<Wide>(step.root_factor);
  Stored* __restrict values = stretch.values;
  const Stored* __restrict gradients = stretch.gradients;
  Wide* __restrict averages = stretch.averages;
  Wide* __restrict squares = stretch.squares;
  Wide* __restrict masters = stretch.masters;
  for (std::size_t i = 0; i < stretch.count; ++i) {
    Wide value = read_value(values[i], masters, i);
    Wide gradient = widened(gradients[i]);
    if constexpr (Decays) gradient = gradient + value * decay;
    value = value * kept;
    const Wide average = mixed<FromGradient>(averages[i], gradient, weight);
    const Wide square = squares[i] * beta2 + new_square * gradient * gradient;
    averages[i] = average;
    squares[i] = square;
    value = value - step_size * average / (std::sqrt(square) * root_factor + epsilon);
    write_value(values[i], masters, i, value);
  }
}

}  // namespace

template <InstructionSet Set, typename Stored>
void AdamLoops<Set, Stored>::run(const AdamStretch<Stored>& stretch,
                                 const AdamStep& step) noexcept {
  const bool from_gradient = 1 - step.beta1 >= 0.5;
  const bool decays = step.decay != 0;
  if (from_gradient) {
    decays ? pass<true, true>(stretch, step) : pass<true, false>(stretch, step);
  } else {
    decays ? pass<false, true>(stretch, step) : pass<false, false>(stretch, step);
  }
}
template struct AdamLoops<kCompiledFor, float>;
template struct AdamLoops<kCompiledFor, double>;
template struct AdamLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
