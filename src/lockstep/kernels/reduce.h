// Reduces spans of several ranks to one result, in the order of a TreePlan, and writes it to one or
// more destinations in the same pass. Every transport reduces with this function, so that all of
// them are bit-identical.
//
// 16-bit floating point is reduced in float and rounded once, at the end. An average divides the
// sum once, before that rounding. Operations are never reassociated or fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/kernels/dtype.h"
#include "lockstep/kernels/instruction_set.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

struct Reduction {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;  // average divides by the plan's number of contributions
  std::int64_t weight = 0;      // of all contributions; weighted_average divides by it
};

/// Reduces the contributions that start at `sources` and writes the result to every one of
/// `destinations`. Each is `count` elements long and aligned to its element. A destination may be
/// identical with a source (same start); it overlaps no other memory of the call.
void reduce(const Reduction& reduction, const TreePlan& plan,
            std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count, InstructionSet set = best_instruction_set());

// A partial is the reduced tree over some of the contributions, neither divided nor rounded: the
// result of reduce() over partials is bit-identical to that over their contributions.

/// The dtype of partials: float32 for 16-bit floating point, otherwise `dtype`.
[[nodiscard]] DType partial_dtype(DType dtype) noexcept;
/// Reduces contributions as reduce() does, to a partial.
void reduce_to_partial(DType dtype, ReduceOp op, const TreePlan& plan,
                       std::span<const std::byte* const> sources, std::byte* partial,
                       std::size_t count, InstructionSet set = best_instruction_set());
/// Reduces partials to the result. `plan` is over the partials, of `num_contributions` in all.
void reduce_partials(const Reduction& reduction, const TreePlan& plan, int num_contributions,
                     std::span<const std::byte* const> partials, std::byte* destination,
                     std::size_t count, InstructionSet set = best_instruction_set());

/// What the reduced value is divided by; 1 if the operation does not divide.
[[nodiscard]] double divisor_of(const Reduction& reduction, const TreePlan& plan) noexcept;

/// Throws UsageError for an invalid reduction: an average of integers or booleans.
void expect_valid(const Reduction& reduction);

}  // namespace lockstep
