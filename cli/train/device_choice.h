// Decides on which device a run trains. Pure: the decision depends only on the facts, and carries
// its reason.
#pragma once

#include <string>

#include "cli/train/config.h"

namespace lockstep::cli {

struct DeviceFacts {
  TrainDevice asked = TrainDevice::automatic;
  std::string ranks = "auto";  // --ranks
  int num_gpus = 0;            // visible to this process
  bool allow_shared_gpu = false;
  bool build_has_cuda = false;
  std::string cuda_missing = {};  // in a build without CUDA: what was missing
  std::string cuda_remedy = {};   // and how to get it
};

struct DeviceDecision {
  TrainDevice device = TrainDevice::cpu;  // never automatic
  std::string reason;                     // "auto: 1 GPU is visible"; empty if there is no GPU
};

/// Throws UsageError if --device cuda cannot be fulfilled, with the reason and what to do.
[[nodiscard]] DeviceDecision choose_device(const DeviceFacts& facts);

}  // namespace lockstep::cli
