#include "lockstep/train/adam_pass_internal.h"

#include <cmath>

#include "lockstep/train/masters_internal.h"

namespace lockstep {
namespace {

// exp_avg.lerp_(gradient, 1 - beta1) as LibTorch does it: from the nearer end.
template <bool FromGradient, typename Wide>
Wide mixed(Wide average, Wide gradient, Wide weight) noexcept {
  if constexpr (FromGradient) return gradient - (gradient - average) * (Wide(1) - weight);
  return average + (gradient - average) * weight;
}

template <bool FromGradient, bool Decays, typename Stored, typename Wide>
void pass(const AdamStretch<Stored, Wide>& stretch, const AdamStep& step) noexcept {
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
    Wide gradient = widened<Wide>(gradients[i]);
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

template <typename Stored, typename Wide>
void choose(const AdamStretch<Stored, Wide>& stretch, const AdamStep& step) noexcept {
  const bool from_gradient = 1 - step.beta1 >= 0.5;
  const bool decays = step.decay != 0;
  if (from_gradient) {
    decays ? pass<true, true>(stretch, step) : pass<true, false>(stretch, step);
  } else {
    decays ? pass<false, true>(stretch, step) : pass<false, false>(stretch, step);
  }
}

}  // namespace

void adam_pass(const AdamStretch<float, float>& stretch, const AdamStep& step) noexcept {
  choose(stretch, step);
}
void adam_pass(const AdamStretch<double, double>& stretch, const AdamStep& step) noexcept {
  choose(stretch, step);
}
void adam_pass(const AdamStretch<std::uint16_t, float>& stretch, const AdamStep& step) noexcept {
  choose(stretch, step);
}

}  // namespace lockstep
