// SGD over flat memory: torch.optim's, with momentum, dampening, Nesterov's form and weight decay.
// See adam.h about bits.
#pragma once

#include <vector>

#include "lockstep/train/flat_optimizer.h"

namespace lockstep {

struct SGDOptions {
  double lr = 1e-2;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // added to the gradient
  bool nesterov = false;
  std::vector<ParameterGroup> groups = {};
};

class SGD final : public FlatOptimizer {
 public:
  /// Throws UsageError for options out of range, and for Nesterov's form without momentum or with
  /// dampening.
  explicit SGD(FlatParameters& flat, const SGDOptions& options = {});

 private:
  void update(const StepRange& range, const GroupStep& group) override;

  SGDOptions options_;
};

}  // namespace lockstep
