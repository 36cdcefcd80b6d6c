// Sums of squares in double, for norms of gradients.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

/// Squares are summed per block, and the sums of the blocks in order, so that the result does not
/// depend on the thread that sums a block.
constexpr std::size_t kSquaresBlock = 1U << 16;  // elements

/// `Stored` is float, double, Float16 or BFloat16.
template <InstructionSet, typename Stored>
struct SquaresLoops {
  /// The sum of squares over one block; the last block may be shorter.
  [[nodiscard]] static double sum(std::span<const Stored> block) noexcept;
};

}  // namespace lockstep
