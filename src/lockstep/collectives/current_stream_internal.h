// LibTorch's current stream of a GPU, for files that include no CUDA header.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/fabric/device.h"

namespace lockstep {

/// The handle of the stream on which the calling thread enqueues work for `device`, a GPU.
[[nodiscard]] inline void* current_stream_of(const Device& device) {
  const c10::Device where(c10::kCUDA, static_cast<c10::DeviceIndex>(device.index));
  return c10::impl::VirtualGuardImpl(where.type()).getStream(where).native_handle();
}

}  // namespace lockstep
