// Adam and AdamW over flat memory: torch.optim's, without amsgrad. Results are within a few units
// in the last place of LibTorch's fused kernels, which fuse multiplications into additions where
// the processor can; ours have the same bits on every processor (docs/train_statements.md).
#pragma once

#include <tuple>
#include <vector>

#include "lockstep/train/flat_optimizer.h"

namespace lockstep {

struct AdamOptions {
  double lr = 1e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
  std::vector<ParameterGroup> groups = {};
};

class Adam final : public FlatOptimizer {
 public:
  /// Throws UsageError for options out of range.
  explicit Adam(FlatParameters& flat, const AdamOptions& options = {});

 private:
  void update(const StepRange& range, const GroupStep& group) override;

  AdamOptions options_;
};

struct AdamWOptions {
  double lr = 1e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  // taken off the parameter, times the lr
  std::vector<ParameterGroup> groups = {};
};

class AdamW final : public FlatOptimizer {
 public:
  /// Throws UsageError for options out of range.
  explicit AdamW(FlatParameters& flat, const AdamWOptions& options = {});

 private:
  void update(const StepRange& range, const GroupStep& group) override;

  AdamWOptions options_;
};

}  // namespace lockstep
