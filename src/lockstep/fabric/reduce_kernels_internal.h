// The loops of reduce.h, one for each type and operation, in a table for each set of vector
// registers that a processor may have.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "lockstep/fabric/dtype.h"
#include "lockstep/fabric/leaf_tree.h"

namespace lockstep {

/// The joined result is divided by `divisor`, where the type is floating point.
using ReduceKernel = void (*)(const TreePlan&, double divisor, std::span<const std::byte* const>,
                              std::span<std::byte* const>, std::size_t count);
using ReduceKernels = std::array<std::array<ReduceKernel, kNumReduceOps>, kNumDTypes>;

/// By DType and ReduceOp, for the registers of their names.
[[nodiscard]] const ReduceKernels& baseline_kernels() noexcept;
[[nodiscard]] const ReduceKernels& avx2_kernels() noexcept;
[[nodiscard]] const ReduceKernels& avx512_kernels() noexcept;
/// The quickest that this processor has.
[[nodiscard]] const ReduceKernels& best_kernels() noexcept;

}  // namespace lockstep
