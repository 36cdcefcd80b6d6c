// Loops over gradients that note elements which are not finite, in the same pass as they copy, add
// or multiply.
//
// An element is not finite when all bits of its exponent are set. Its note is its exponent plus the
// lowest bit of exponents: that carries into the sign where all bits are set, and only there. So
// the notes of many elements are or-ed without a comparison.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

/// Memory from this size on, of which a copy writes a part, is larger than a core's part of most
/// last-level caches: written from end to end, none of it is cached any more when its turn comes
/// again. Copied past the caches it need not be read into them first, which is a third of what a
/// copy moves on x86. A later reader fetches it from memory in both cases.
constexpr std::size_t kStreamBytes = 8U << 20;

enum class Caching { through, past };

/// `Stored` is float, double, Float16 or BFloat16. Spans do not overlap.
template <InstructionSet, typename Stored>
struct NotedLoops {
  /// Copies `from`, which is as long as `to`. Returns true when an element is not finite.
  /// After Caching::past, later stores of this thread are seen after the copy, as always.
  static bool copy(std::span<Stored> to, const Stored* from, Caching caching) noexcept;
  /// Adds `from`. Returns true when a sum is not finite.
  static bool add(std::span<Stored> to, const Stored* from) noexcept;
  /// Multiplies by `factor`, 16-bit types in float and rounded once. Returns true when an element
  /// was not finite before.
  static bool multiply(std::span<Stored> values, double factor) noexcept;
  [[nodiscard]] static bool has_non_finite(std::span<const Stored> values) noexcept;
};

}  // namespace lockstep
