// The time at which a stream reaches a point, by the clock of the GPU, which all processes on it
// share: events of two processes cannot be compared.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep {

/// Enqueues on `stream`: writes nanoseconds to `stamp`, pinned memory of the host.
void stamp(std::uint64_t* stamp, cudaStream_t stream);

}  // namespace lockstep
