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

template <InstructionSet>
struct ReduceLoops {
  [[nodiscard]] static const ReduceTable& table() noexcept;
};

}  // namespace lockstep
