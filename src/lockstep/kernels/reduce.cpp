#include "lockstep/kernels/reduce.h"

#include <fmt/format.h>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/kernels/moved_bytes.h"
#include "lockstep/kernels/reduce_loops_internal.h"

namespace lockstep {
namespace {

bool has_wide_partials(DType dtype) noexcept {
  return dtype == DType::float16 || dtype == DType::bfloat16;
}

ReduceLoop loop_in(const PartialTable& table, DType dtype, ReduceOp op) {
  return table[dtype == DType::float16 ? 0 : 1][static_cast<std::size_t>(op)];
}

}  // namespace

double divisor_of(const Reduction& reduction, const TreePlan& plan) noexcept {
  if (reduction.op == ReduceOp::average) return plan.num_contributions();
  if (reduction.op != ReduceOp::weighted_average) return 1;
  return reduction.weight > 0 ? static_cast<double>(reduction.weight) : 1;
}

void reduce(const Reduction& reduction, const TreePlan& plan,
            std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count, InstructionSet set) {
  LOCKSTEP_ASSERT(static_cast<int>(sources.size()) == plan.num_contributions(),
                  "the number of sources differs from the plan's number of contributions");
  const auto divisor = divisor_of(reduction, plan);
  const bool is_there = sources.size() == 1 && destinations.size() == 1 &&
                        sources.front() == destinations.front() && divisor == 1;
  if (is_there && reduction.dtype != DType::boolean) return;
  const auto bytes = count * bytes_of(reduction.dtype);
  note_moved({.loaded = bytes * sources.size(), .stored = bytes * destinations.size()});
  const auto* table = dispatch<ReduceLoops>(set, [](auto loops) { return &loops.table(); });
  (*table)[static_cast<std::size_t>(reduction.dtype)][static_cast<std::size_t>(reduction.op)](
      plan, divisor, sources, destinations, count);
}

DType partial_dtype(DType dtype) noexcept {
  return has_wide_partials(dtype) ? DType::float32 : dtype;
}

void reduce_to_partial(DType dtype, ReduceOp op, const TreePlan& plan,
                       std::span<const std::byte* const> sources, std::byte* partial,
                       std::size_t count, InstructionSet set) {
  const auto undivided = divides(op) ? ReduceOp::sum : op;
  if (!has_wide_partials(dtype)) {
    return reduce({dtype, undivided}, plan, sources, std::span(&partial, 1), count, set);
  }
  const auto* table = dispatch<ReduceLoops>(set, [](auto loops) { return &loops.to_partial(); });
  loop_in(*table, dtype, undivided)(plan, 1, sources, std::span(&partial, 1), count);
}

void reduce_partials(const Reduction& reduction, const TreePlan& plan, int num_contributions,
                     std::span<const std::byte* const> partials, std::byte* destination,
                     std::size_t count, InstructionSet set) {
  auto by_weight = reduction;
  if (reduction.op == ReduceOp::average) {  // the plan does not know the contributions
    by_weight.op = ReduceOp::weighted_average;
    by_weight.weight = num_contributions;
  }
  const auto destinations = std::span(&destination, 1);
  if (!has_wide_partials(reduction.dtype)) {
    return reduce(by_weight, plan, partials, destinations, count, set);
  }
  const auto* table = dispatch<ReduceLoops>(set, [](auto loops) { return &loops.from_partials(); });
  loop_in(*table, reduction.dtype, by_weight.op)(plan, divisor_of(by_weight, plan), partials,
                                                 destinations, count);
}

void expect_valid(const Reduction& reduction) {
  if (divides(reduction.op) && !is_floating(reduction.dtype)) {
    throw UsageError(
        fmt::format("the average of {} is unsupported; use sum, or convert to floating point first",
                    to_string(reduction.dtype)));
  }
}

}  // namespace lockstep
