// How many GPUs the ranks of this machine may use, without loading CUDA.
#pragma once

#include <string>

#include "lockstep/base/environment.h"

namespace lockstep {

/// The NVIDIA driver's cards under `root` ("/proc/driver/nvidia/gpus"), or as many of them as
/// CUDA_VISIBLE_DEVICES names.
[[nodiscard]] int num_gpus(const Environment& environment,
                           const std::string& root = "/proc/driver/nvidia/gpus");

}  // namespace lockstep
