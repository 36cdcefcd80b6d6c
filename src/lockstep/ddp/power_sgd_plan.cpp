#include <algorithm>

#include "lockstep/ddp/power_sgd_plan_internal.h"

namespace lockstep {

bool is_compressed(std::int64_t rows, std::int64_t columns, std::int64_t rank,
                   double min_ratio) noexcept {
  return static_cast<double>((rows + columns) * rank) * min_ratio <
         static_cast<double>(rows * columns);
}

PowerSgdPlan plan_power_sgd(std::span<const BucketParameter> parameters,
                            const PowerSgdOptions& options) {
  PowerSgdPlan plan;
  plan.parameters.assign(parameters.begin(), parameters.end());
  for (const auto& parameter : parameters) {
    const auto count = parameter.end - parameter.begin;
    const auto rows = parameter.sizes.empty() || count == 0 ? 1 : parameter.sizes.front();
    const auto columns = count / rows;
    const auto rank = std::min<std::int64_t>({rows, columns, options.rank});
    if (!is_compressed(rows, columns, rank, options.min_ratio)) {
      plan.plain.push_back(parameter);
      plan.num_plain += count;
      continue;
    }
    auto batch = std::ranges::find_if(plan.batches, [&](const MatrixBatch& each) {
      return each.rows == rows && each.columns == columns;
    });
    if (batch == plan.batches.end()) {
      plan.batches.push_back({.rows = rows, .columns = columns, .rank = rank});
      batch = plan.batches.end() - 1;
    }
    batch->matrices.push_back(parameter);
  }
  for (auto& batch : plan.batches) {
    batch.values_begin = plan.num_values;
    batch.left_begin = plan.num_left;
    batch.right_begin = plan.num_right;
    plan.num_values += batch.size() * batch.rows * batch.columns;
    plan.num_left += batch.size() * batch.rank * batch.rows;
    plan.num_right += batch.size() * batch.rank * batch.columns;
  }
  return plan;
}

}  // namespace lockstep
