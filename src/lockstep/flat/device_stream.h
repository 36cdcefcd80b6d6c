// The CUDA stream on which LibTorch enqueues work for a device, for files that include no CUDA
// header.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/kernels/device_passes.h"

namespace lockstep {

/// The current stream of `device`, which is a GPU.
[[nodiscard]] inline DeviceStream current_stream(at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return {guard.getStream(device).native_handle()};
}

}  // namespace lockstep
