// What the CUDA sources of this room share.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "lockstep/kernels/device_passes.h"

namespace lockstep {

constexpr unsigned kThreads = 256;  // per block

inline cudaStream_t cuda_stream(DeviceStream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

/// Throws SystemError if the launch before it was refused.
void expect_launched(const char* pass);

/// Calls each(i) for every element of a chunk, with the threads of one block. Neighboring threads
/// have neighboring elements, and each thread has several loads in flight.
template <typename Each>
__device__ void for_each_element(const DeviceChunk& chunk, const Each& each) {
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) each(chunk.begin + i);
}

}  // namespace lockstep
