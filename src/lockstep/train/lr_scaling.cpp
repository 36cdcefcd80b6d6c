#include "lockstep/train/lr_scaling.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep {

ScaledLr scale_lr(double base_lr, std::int64_t base_batch, std::int64_t global_batch, LrRule rule) {
  if (base_batch < 1 || global_batch < 1) {
    throw UsageError(
        fmt::format("scaling the lr from batch size {} to batch size {}: both must be at least 1",
                    base_batch, global_batch));
  }
  if (!std::isfinite(base_lr) || base_lr <= 0) {
    throw UsageError(fmt::format("scaling an lr of {}: expected a finite value above 0", base_lr));
  }
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(base_batch);
  const double factor = rule == LrRule::linear ? ratio : std::sqrt(ratio);
  return {base_lr, base_batch, global_batch, rule, factor, base_lr * factor};
}

std::string describe(const ScaledLr& lr) {
  const bool linear = lr.rule == LrRule::linear;
  return fmt::format("lr {:.6g} = {:.6g} × {}{}/{}{} ({})", lr.lr, lr.base_lr, linear ? "" : "√(",
                     lr.global_batch, lr.base_batch, linear ? "" : ")",
                     linear ? "linear" : "square root");
}

}  // namespace lockstep
