// Joins spans of several ranks into one result, in the order of a TreePlan, and writes it to one or
// more places in the same pass: what every transport reduces with, so that all of them give equal
// bits.
//
// 16-bit floating point is joined in float and rounded once, at the end. An average divides the
// finished sum once, before that rounding. Nothing is reassociated or fused.
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
  std::int64_t weight = 0;      // of all contributions: weighted_average divides by this
};

/// `sources` holds the start of each contribution, `destinations` the places the result goes to;
/// each is `count` elements long and aligned to its element. A destination may be a source (the
/// very same start), and overlaps nothing else.
void reduce(const Reduction& reduction, const TreePlan& plan,
            std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count, InstructionSet set = best_instruction_set());

/// Throws UsageError for a reduction that has no meaning: an average of integers or booleans.
void expect_meaning(const Reduction& reduction);

}  // namespace lockstep
