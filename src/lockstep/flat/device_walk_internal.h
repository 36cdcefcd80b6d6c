// The operations of walk.h over CUDA tensors. They run on the current stream of the tensor's
// device. Those that return a number wait for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep {

[[nodiscard]] bool has_non_finite_on_device(const at::Tensor& flat);
[[nodiscard]] double squared_norm_on_device(const at::Tensor& flat);
[[nodiscard]] std::uint64_t digest_on_device(const at::Tensor& flat);

}  // namespace lockstep
