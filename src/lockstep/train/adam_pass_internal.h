// One step of Adam or AdamW over stretches of memory, in one pass: each value is read once and
// written once. IEEE arithmetic element by element, nothing fused or reassociated: the bits depend
// neither on the processor nor on how the memory is cut into stretches.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// What is the same for all elements of a step, in double; rounded once to what the pass computes
/// in.
struct AdamStep {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double kept = 1;         // of the parameter: 1 - rate × decay (AdamW)
  double decay = 0;        // times the parameter, added to the gradient (Adam)
  double step_size = 0;    // rate / (1 - beta1^t)
  double root_factor = 1;  // 1 / sqrt(1 - beta2^t)
};

/// Stretches of equal length that do not overlap. `Stored` is float, double, or std::uint16_t for
/// bfloat16.
template <typename Stored, typename Wide>
struct AdamStretch {
  Stored* values = nullptr;
  const Stored* gradients = nullptr;
  Wide* averages = nullptr;
  Wide* squares = nullptr;
  Wide* masters = nullptr;  // of 16-bit values, none otherwise
  std::size_t count = 0;
};

void adam_pass(const AdamStretch<float, float>& stretch, const AdamStep& step) noexcept;
void adam_pass(const AdamStretch<double, double>& stretch, const AdamStep& step) noexcept;
/// Computes with the masters, in float, and rounds them to the values. A value that is not its
/// master's was changed by someone else since: it is the new master.
void adam_pass(const AdamStretch<std::uint16_t, float>& stretch, const AdamStep& step) noexcept;

}  // namespace lockstep
