#include "lockstep/kernels/reduce.h"

#include <fmt/format.h>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/kernels/reduce_loops_internal.h"

namespace lockstep {
namespace {

double divisor_of(const Reduction& reduction, const TreePlan& plan) {
  if (reduction.op == ReduceOp::average) return plan.num_contributions();
  if (reduction.op != ReduceOp::weighted_average) return 1;
  return reduction.weight > 0 ? static_cast<double>(reduction.weight) : 1;
}

}  // namespace

void reduce(const Reduction& reduction, const TreePlan& plan,
            std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count, InstructionSet set) {
  LOCKSTEP_ASSERT(static_cast<int>(sources.size()) == plan.num_contributions(),
                  "the number of sources differs from the plan's number of contributions");
  const auto divisor = divisor_of(reduction, plan);
  const bool is_there = sources.size() == 1 && destinations.size() == 1 &&
                        sources.front() == destinations.front() && divisor == 1;
  if (is_there && reduction.dtype != DType::boolean) return;
  const auto* table = dispatch<ReduceLoops>(set, [](auto loops) { return &loops.table(); });
  (*table)[static_cast<std::size_t>(reduction.dtype)][static_cast<std::size_t>(reduction.op)](
      plan, divisor, sources, destinations, count);
}

void expect_valid(const Reduction& reduction) {
  if (divides(reduction.op) && !is_floating(reduction.dtype)) {
    throw UsageError(
        fmt::format("the average of {} is unsupported; use sum, or convert to floating point first",
                    to_string(reduction.dtype)));
  }
}

}  // namespace lockstep
