// One step of Adam or AdamW over stretches of memory, in one pass: each value is read once and
// written once. IEEE arithmetic element by element, nothing fused or reassociated: the bits depend
// neither on the processor nor on how the memory is cut into stretches.
#pragma once

#include <cstddef>

#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

/// What is the same for all elements of a step, in double; rounded once to the type that the pass
/// computes in.
struct AdamStep {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double kept = 1;         // of the parameter: 1 - lr × decay (AdamW)
  double decay = 0;        // times the parameter, added to the gradient (Adam)
  double step_size = 0;    // lr / (1 - beta1^t)
  double root_factor = 1;  // 1 / sqrt(1 - beta2^t)
};

/// Stretches of equal length that do not overlap. `Stored` is float, double or BFloat16.
template <typename Stored>
struct AdamStretch {
  using Wide = WideOf<Stored>;

  Stored* values = nullptr;
  const Stored* gradients = nullptr;
  Wide* averages = nullptr;
  Wide* squares = nullptr;
  Wide* masters = nullptr;  // for BFloat16 alone: the values in float, which the pass steps
  std::size_t count = 0;

  /// Elements [begin, end).
  [[nodiscard]] AdamStretch part(std::size_t begin, std::size_t end) const noexcept {
    return {values + begin,
            gradients + begin,
            averages + begin,
            squares + begin,
            masters == nullptr ? nullptr : masters + begin,
            end - begin};
  }
};

template <InstructionSet, typename Stored>
struct AdamLoops {
  static void run(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept;
};

template <typename Stored>
void adam_pass(const AdamStretch<Stored>& stretch, const AdamStep& step,
               InstructionSet set = best_instruction_set()) noexcept {
  dispatch<AdamLoops, Stored>(set, [&](auto loops) { loops.run(stretch, step); });
}

}  // namespace lockstep
