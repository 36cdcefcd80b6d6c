// The loops of reduce.h, one per dtype and operation.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/dtype.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

/// Divides the result by `divisor` if the dtype is floating point.
using ReduceLoop = void (*)(const TreePlan&, double divisor, std::span<const std::byte* const>,
                            std::span<std::byte* const>, std::size_t count);
/// By DType and ReduceOp.
using ReduceTable = std::array<std::array<ReduceLoop, kNumReduceOps>, kNumDTypes>;
/// By 16-bit DType, float16 first, and ReduceOp.
using PartialTable = std::array<std::array<ReduceLoop, kNumReduceOps>, 2>;

template <InstructionSet>
struct ReduceLoops {
  [[nodiscard]] static const ReduceTable& table() noexcept;
  /// From 16-bit sources to float.
  [[nodiscard]] static const PartialTable& to_partial() noexcept;
  /// From sources in float to a 16-bit result.
  [[nodiscard]] static const PartialTable& from_partials() noexcept;
};

}  // namespace lockstep
