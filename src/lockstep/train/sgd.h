// SGD over flat buffers, as torch.optim's, with momentum, dampening, Nesterov momentum and weight
// decay. adam.h describes how results compare with LibTorch's bit by bit.
#pragma once

#include <vector>

#include "lockstep/train/flat_optimizer.h"

namespace lockstep {

struct SGDOptions {
  double lr = 1e-2;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // L2: weight_decay × parameter is added to the gradient
  bool nesterov = false;
  std::vector<ParameterGroup> groups = {};
};

class SGD final : public FlatOptimizer {
 public:
  /// Throws UsageError for options out of range, for `nesterov` without momentum or with dampening,
  /// and for an unsupported dtype.
  explicit SGD(FlatParameters& flat, const SGDOptions& options = {});

 private:
  void update(const SegmentMemory& memory, std::span<const RangeStep> ranges) override;

  SGDOptions options_;
};

}  // namespace lockstep
