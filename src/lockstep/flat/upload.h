// Small tables of the host in device memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep {

/// A copy of `bytes` on `device`, made on its current stream, without waiting for the device.
/// Throws UsageError, naming `what`, while a CUDA graph is captured: each replay would copy from
/// host memory that is used for something else by then.
[[nodiscard]] at::Tensor upload(std::span<const std::byte> bytes, at::Device device,
                                std::string_view what);

}  // namespace lockstep
