// The gradient hook that --compress selects, and its state.
#pragma once

#include <optional>

#include "cli/train/config.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/ddp/gradient_hook.h"
#include "lockstep/ddp/int8_compression.h"
#include "lockstep/ddp/power_sgd.h"

namespace lockstep::cli {

class Compression {
 public:
  explicit Compression(const TrainConfig& config);

  /// nullopt for --compress none.
  [[nodiscard]] std::optional<GradientHook> hook() const { return hook_; }
  /// Saves and resumes what this rank's gradients have lost so far.
  void track(Run& run);

 private:
  std::optional<Int8Compression> int8_;
  std::optional<PowerSgd> power_sgd_;
  std::optional<GradientHook> hook_;
};

}  // namespace lockstep::cli
