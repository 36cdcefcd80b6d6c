// Conversions between float and the 16-bit formats as loops over memory, for transfer. Rounded
// once, to nearest even; a NaN becomes a quiet NaN. `Stored` is Float16 or BFloat16.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

template <InstructionSet, typename Stored>
struct ConvertLoops {
  static void narrow(const float* from, Stored* to, std::size_t count) noexcept;
  static void widen(const Stored* from, float* to, std::size_t count) noexcept;
};

/// Both have the same length and do not overlap.
template <typename Stored>
void narrow_pass(std::span<const float> from, std::span<Stored> to,
                 InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(from.size() == to.size(), "narrow_pass: lengths differ");
  dispatch<ConvertLoops, Stored>(
      set, [&](auto loops) { loops.narrow(from.data(), to.data(), from.size()); });
}

/// Both have the same length and do not overlap.
template <typename Stored>
void widen_pass(std::span<const Stored> from, std::span<float> to,
                InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(from.size() == to.size(), "widen_pass: lengths differ");
  dispatch<ConvertLoops, Stored>(
      set, [&](auto loops) { loops.widen(from.data(), to.data(), from.size()); });
}

}  // namespace lockstep
