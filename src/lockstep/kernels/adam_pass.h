// One step of Adam or AdamW over contiguous memory, in one pass: each value is read once and
// written once. Elementwise IEEE arithmetic, never fused or reassociated: the result is
// bit-identical on every processor and for every partition of the memory into stretches.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lockstep/kernels/caching.h"
#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"
#include "lockstep/kernels/moved_bytes.h"

namespace lockstep {

/// The constants of a step, in double. The pass rounds each once to the type that it computes in.
struct AdamStep {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double kept = 1;         // factor of the parameter: 1 - lr × weight_decay (AdamW)
  double decay = 0;        // weight_decay: times the parameter, added to the gradient (Adam)
  double step_size = 0;    // lr / (1 - beta1^t)
  double root_factor = 1;  // 1 / sqrt(1 - beta2^t)
};

/// The options of an optimizer on which the constants of all its steps depend.
struct AdamRule {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool decoupled = false;  // the weight decay: AdamW
};

/// base^exponent by repeated squaring. Its multiplications are those of IEEE, so that the result is
/// bit-identical on hosts and devices, which std::pow is not.
[[nodiscard]] constexpr double integer_power(double base, std::int64_t exponent) noexcept {
  double power = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) power *= base;
    base *= base;
  }
  return power;
}

/// The constants of step number `t` of a parameter, counted from 1.
[[nodiscard]] constexpr AdamStep adam_step(const AdamRule& rule, double lr, double weight_decay,
                                           std::int64_t t) noexcept {
  return {.beta1 = rule.beta1,
          .beta2 = rule.beta2,
          .eps = rule.eps,
          .kept = rule.decoupled ? 1 - lr * weight_decay : 1,
          .decay = rule.decoupled ? 0 : weight_decay,
          .step_size = lr / (1 - integer_power(rule.beta1, t)),
          .root_factor = 1 / std::sqrt(1 - integer_power(rule.beta2, t))};
}

/// Arrays of equal length that do not overlap. `Stored` is float, double or BFloat16.
template <typename Stored>
struct AdamStretch {
  using Wide = WideOf<Stored>;

  Stored* values = nullptr;
  const Stored* gradients = nullptr;
  Wide* averages = nullptr;
  Wide* squares = nullptr;
  Wide* masters = nullptr;  // BFloat16 only: the parameters in float, which the pass updates
  std::size_t count = 0;
  bool gradients_are_packed = false;  // as the state
  // Null: in `values`, which the pass then updates in place. Otherwise `values` may be `gradients`,
  // which the pass then overwrites.
  const Stored* old_values = nullptr;
  Caching caching = Caching::through;  // of new values in memory of their own

  /// Elements [begin, end).
  [[nodiscard]] constexpr AdamStretch part(std::size_t begin, std::size_t end) const noexcept {
    return part(begin, begin, end - begin);
  }
  /// `length` values and gradients from `begin`; their state, and packed gradients, are from
  /// `packed_begin`.
  [[nodiscard]] constexpr AdamStretch part(std::size_t begin, std::size_t packed_begin,
                                           std::size_t length) const noexcept {
    return {values + begin,
            gradients + (gradients_are_packed ? packed_begin : begin),
            averages + packed_begin,
            squares + packed_begin,
            masters == nullptr ? nullptr : masters + packed_begin,
            length,
            gradients_are_packed,
            old_values == nullptr ? nullptr : old_values + begin,
            caching};
  }
};

/// What a step loads and stores.
template <typename Stored>
[[nodiscard]] MovedBytes moved_by(const AdamStretch<Stored>& stretch) noexcept {
  const auto state = (stretch.masters == nullptr ? 2 : 3) * sizeof(WideOf<Stored>);
  return {.loaded = stretch.count * (2 * sizeof(Stored) + state),
          .stored = stretch.count * (sizeof(Stored) + state)};
}

template <InstructionSet, typename Stored>
struct AdamLoops {
  static void run(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept;
};

template <typename Stored>
void adam_pass(const AdamStretch<Stored>& stretch, const AdamStep& step,
               InstructionSet set = best_instruction_set()) noexcept {
  note_moved(moved_by(stretch));
  dispatch<AdamLoops, Stored>(set, [&](auto loops) { loops.run(stretch, step); });
}

}  // namespace lockstep
