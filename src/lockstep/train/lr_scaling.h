// How a learning rate that is known for one global batch is carried over to another. The result is
// a value that keeps its factors, so that a run can print where its lr comes from.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class LrRule {
  linear,       // times the ratio of the batches: SGD (Goyal et al. 2017)
  square_root,  // times its square root: Adam and AdamW (Malladi et al. 2022)
};

struct ScaledLr {
  double base_lr = 0;
  std::int64_t base_batch = 1;
  std::int64_t global_batch = 1;
  LrRule rule = LrRule::linear;
  double factor = 1;  // by the rule
  double lr = 0;      // base_lr × factor

  friend bool operator==(const ScaledLr&, const ScaledLr&) = default;
};

/// The lr for `global_batch` of one that was found with `base_batch`. Batches are counted in
/// samples over all ranks and micro-steps. Throws UsageError for a batch below 1 or a lr that is
/// no positive number.
[[nodiscard]] ScaledLr scale_lr(double base_lr, std::int64_t base_batch, std::int64_t global_batch,
                                LrRule rule);

/// "lr 0.0004 = 0.0001 × 1024/256 (linear)".
[[nodiscard]] std::string describe(const ScaledLr& lr);

}  // namespace lockstep
