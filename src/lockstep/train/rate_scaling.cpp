#include "lockstep/train/rate_scaling.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep {

ScaledRate scale_rate(double base_rate, std::int64_t base_batch, std::int64_t global_batch,
                      RateRule rule) {
  if (base_batch < 1 || global_batch < 1) {
    throw UsageError(fmt::format("a rate is scaled from batch {} to batch {}: both are at least 1",
                                 base_batch, global_batch));
  }
  if (!std::isfinite(base_rate) || base_rate <= 0) {
    throw UsageError(fmt::format("a rate of {} cannot be scaled: give one above 0", base_rate));
  }
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(base_batch);
  const double factor = rule == RateRule::linear ? ratio : std::sqrt(ratio);
  return {base_rate, base_batch, global_batch, rule, factor, base_rate * factor};
}

std::string describe(const ScaledRate& rate) {
  const bool linear = rate.rule == RateRule::linear;
  return fmt::format("rate {:.6g} = {:.6g} × {}{}/{}{} ({})", rate.rate, rate.base_rate,
                     linear ? "" : "√(", rate.global_batch, rate.base_batch, linear ? "" : ")",
                     linear ? "linear" : "square root");
}

}  // namespace lockstep
