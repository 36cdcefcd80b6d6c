// What the CUDA sources of this room share.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/kernels/device_passes.h"

namespace lockstep {

constexpr unsigned kThreads = 256;  // per block

inline cudaStream_t cuda_stream(DeviceStream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

/// Throws SystemError if the launch before it was refused.
void expect_launched(const char* pass);

/// The number of blocks of `length` elements each that cover `count`.
[[nodiscard]] constexpr unsigned blocks_of(std::size_t count, std::size_t length) {
  return static_cast<unsigned>((count + length - 1) / length);
}

}  // namespace lockstep
