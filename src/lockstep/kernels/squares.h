// Sums of squares in double, for norms of gradients.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

/// Squares are summed block by block, and the sums of blocks one after the other, so that the
/// result does not depend on which thread took which blocks.
constexpr std::size_t kSquaresBlock = 1U << 16;  // elements

/// `Stored` is float, double, Float16 or BFloat16.
template <InstructionSet, typename Stored>
struct SquaresLoops {
  /// The sum over one block, or over what is left of the last one.
  [[nodiscard]] static double sum(std::span<const Stored> block) noexcept;
};

}  // namespace lockstep
