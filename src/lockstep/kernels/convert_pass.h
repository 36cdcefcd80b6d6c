// Conversions between float and the 16-bit formats as loops over memory, for transfer. Rounded
// once, to nearest even; a NaN becomes a quiet NaN. `Stored` is Float16 or BFloat16.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/bfloat16_rounding.h"
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
void narrow_pass(std::span<const float> from, std::span<Stored> to, InstructionSet set) noexcept {
  LOCKSTEP_ASSERT(from.size() == to.size(), "narrow_pass: lengths differ");
  dispatch<ConvertLoops, Stored>(
      set, [&](auto loops) { loops.narrow(from.data(), to.data(), from.size()); });
}

/// In the fastest way of this processor.
template <typename Stored>
void narrow_pass(std::span<const float> from, std::span<Stored> to) noexcept {
  if constexpr (std::is_same_v<Stored, BFloat16>) {
    LOCKSTEP_ASSERT(from.size() == to.size(), "narrow_pass: lengths differ");
    if (rounds_to_bfloat16()) return round_to_bfloat16(from.data(), to.data(), from.size());
  }
  narrow_pass<Stored>(from, to, best_instruction_set());
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
