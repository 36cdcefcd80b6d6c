// What the CUDA sources of this room share.
#pragma once

#include <cuda_runtime.h>

#include "lockstep/kernels/device_passes.h"

namespace lockstep {

constexpr unsigned kThreads = 256;  // per block

inline cudaStream_t cuda_stream(DeviceStream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

/// Throws SystemError if the launch before it was refused.
void expect_launched(const char* pass);

}  // namespace lockstep
