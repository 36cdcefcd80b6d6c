// How a learning rate that is known for one global batch is carried over to another. The result is
// a value that keeps its factors, so that a run can print where its rate comes from.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class RateRule {
  linear,       // times the ratio of the batches: SGD (Goyal et al. 2017)
  square_root,  // times its square root: Adam and AdamW (Malladi et al. 2022)
};

struct ScaledRate {
  double base_rate = 0;
  std::int64_t base_batch = 1;
  std::int64_t global_batch = 1;
  RateRule rule = RateRule::linear;
  double factor = 1;  // by the rule
  double rate = 0;    // base_rate × factor

  friend bool operator==(const ScaledRate&, const ScaledRate&) = default;
};

/// The rate for `global_batch` of one that was found with `base_batch`. Batches are counted in
/// samples over all ranks and micro-steps. Throws UsageError for a batch below 1 or a rate that is
/// no positive number.
[[nodiscard]] ScaledRate scale_rate(double base_rate, std::int64_t base_batch,
                                    std::int64_t global_batch, RateRule rule);

/// "rate 0.0004 = 0.0001 × 1024/256 (linear)".
[[nodiscard]] std::string describe(const ScaledRate& rate);

}  // namespace lockstep
