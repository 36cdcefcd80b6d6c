// The product of two thin matrices as a loop over memory: an approximation of rank r of a matrix
// with n rows and m columns. For each element the r products are added in order and never fused, so
// that the result is bit-identical on all ranks and on every instruction set.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/dispatch.h"

namespace lockstep {

/// `T` is float or double.
template <InstructionSet, typename T>
struct LowRankLoops {
  static void product(const T* left, const T* right, std::size_t rank, T weight, T* result,
                      T* residual, std::size_t rows, std::size_t columns) noexcept;
};

/// result = leftᵀ · right, and residual = residual - weight · result. `left` and `right` have
/// `rank` rows each: those of `left` are as long as a column of the result, those of `right` as
/// long as a row. `residual` has the size of `result`. No spans overlap.
template <typename T>
void low_rank_pass(std::span<const T> left, std::span<const T> right, std::size_t rank, T weight,
                   std::span<T> result, std::span<T> residual,
                   InstructionSet set = best_instruction_set()) noexcept {
  const auto rows = left.size() / rank;
  const auto columns = right.size() / rank;
  LOCKSTEP_ASSERT(result.size() == rows * columns && residual.size() == result.size(),
                  "low_rank_pass: sizes differ");
  dispatch<LowRankLoops, T>(set, [&](auto loops) {
    loops.product(left.data(), right.data(), rank, weight, result.data(), residual.data(), rows,
                  columns);
  });
}

}  // namespace lockstep
