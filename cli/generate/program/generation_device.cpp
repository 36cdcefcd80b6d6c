#include "cli/generate/program/generation_device.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {

GenerationDevice choose_generation_device(TrainDevice asked, int num_gpus,
                                          std::int64_t num_parameters) {
  if (asked == TrainDevice::cuda) {
    if (num_gpus > 0) return {true, "on the GPU"};
    throw UsageError(
        "--device cuda, but LibTorch can use no GPU here: run nvidia-smi, and `lockstep version` "
        "for the CUDA of this build, or give --device cpu");
  }
  if (asked == TrainDevice::cpu || num_gpus == 0) return {};
  if (num_parameters < kLargeModel) {
    return {false, "on the CPU, which is faster for a model of this size"};
  }
  return {true, "on the GPU; --device cpu uses the processor"};
}

}  // namespace lockstep::cli
