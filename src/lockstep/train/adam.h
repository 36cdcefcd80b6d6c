// Adam and AdamW over flat buffers, as torch.optim's without amsgrad. Results are within a few
// units in the last place of LibTorch's fused kernels, which use fused multiply-add where the
// processor has it; ours, from equal inputs, are bit-identical on every processor and on GPUs
// (docs/train_statements.md).
#pragma once

#include <tuple>
#include <vector>

#include "lockstep/train/flat_optimizer.h"

namespace lockstep {

struct AdamOptions {
  double lr = 1e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // L2: weight_decay × parameter is added to the gradient
  std::vector<ParameterGroup> groups = {};
};

class Adam final : public FlatOptimizer {
 public:
  /// Throws UsageError for options out of range, and for an unsupported dtype.
  explicit Adam(FlatParameters& flat, const AdamOptions& options = {});

 private:
  void update(const SegmentMemory& memory, std::span<const RangeStep> ranges) override;

  AdamOptions options_;
};

struct AdamWOptions {
  double lr = 1e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  // decoupled: lr × weight_decay × parameter is subtracted from it
  std::vector<ParameterGroup> groups = {};
};

class AdamW final : public FlatOptimizer {
 public:
  /// Throws UsageError for options out of range, and for an unsupported dtype.
  explicit AdamW(FlatParameters& flat, const AdamWOptions& options = {});

 private:
  void update(const SegmentMemory& memory, std::span<const RangeStep> ranges) override;

  AdamWOptions options_;
};

}  // namespace lockstep
