// Loops over gradients that copy, add or multiply, and report non-finite elements in the same pass.
//
// Words: an element is non-finite if all bits of its exponent are set. The note of an element is
// its exponent field plus the lowest bit of that field: the sum carries into the sign bit exactly
// if all bits are set. The notes of many elements are therefore or-ed without a comparison.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/kernels/copy_pass.h"
#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

/// `Stored` is float, double, Float16 or BFloat16. Spans do not overlap.
template <InstructionSet, typename Stored>
struct NotedLoops {
  /// Copies `from`, which is as long as `to`. Returns whether an element is non-finite.
  /// Also after Caching::past, a later release store orders the copy.
  static bool copy(std::span<Stored> to, const Stored* from, Caching caching) noexcept;
  /// Adds `from` to `to`. Returns whether a sum is non-finite.
  static bool add(std::span<Stored> to, const Stored* from) noexcept;
  /// Multiplies by `factor`; computes 16-bit types in float and rounds once. Returns whether an
  /// element was non-finite before.
  static bool multiply(std::span<Stored> values, double factor) noexcept;
  [[nodiscard]] static bool has_non_finite(std::span<const Stored> values) noexcept;
};

}  // namespace lockstep
