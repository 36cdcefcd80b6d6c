// The number of GPUs that the ranks of this machine may use, without loading CUDA.
#pragma once

#include <string>

#include "lockstep/base/environment.h"

namespace lockstep {

/// The number of devices of the NVIDIA driver under `root` ("/proc/driver/nvidia/gpus"), limited to
/// the number that CUDA_VISIBLE_DEVICES lists if it is set.
[[nodiscard]] int num_gpus(const Environment& environment,
                           const std::string& root = "/proc/driver/nvidia/gpus");

}  // namespace lockstep
