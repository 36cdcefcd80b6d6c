// Scales a learning rate that was found with one global batch size to another. The result keeps its
// factors, so that a run can print how its lr was computed.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class LrRule {
  linear,       // × the ratio of the batch sizes: SGD (Goyal et al. 2017)
  square_root,  // × the square root of that ratio: Adam and AdamW (Malladi et al. 2022)
};

struct ScaledLr {
  double base_lr = 0;
  std::int64_t base_batch = 1;
  std::int64_t global_batch = 1;
  LrRule rule = LrRule::linear;
  double factor = 1;  // from the rule and the batch sizes
  double lr = 0;      // base_lr × factor

  friend bool operator==(const ScaledLr&, const ScaledLr&) = default;
};

/// The lr for batch size `global_batch`, given `base_lr` for batch size `base_batch`. Batch sizes
/// are in samples, summed over all ranks and micro-batches.
/// Throws UsageError for a batch size below 1 and for a base_lr that is not a positive finite
/// number.
[[nodiscard]] ScaledLr scale_lr(double base_lr, std::int64_t base_batch, std::int64_t global_batch,
                                LrRule rule);

/// "lr 0.0004 = 0.0001 × 1024/256 (linear)".
[[nodiscard]] std::string describe(const ScaledLr& lr);

}  // namespace lockstep
