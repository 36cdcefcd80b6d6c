// Tensors as a group uses them: a span of bytes with its dtype and device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/fabric/device.h"
#include "lockstep/fabric/group.h"
#include "lockstep/kernels/dtype.h"

namespace lockstep {

struct TensorSpan {
  DType dtype = DType::uint8;
  std::span<std::byte> bytes = {};
  Device device = {};
};

/// Returns `device` as the type of fabric. The only function that asks a backend whether it
/// supports a device. Throws UsageError, naming `what` ("input of all_gather"), if it does not.
[[nodiscard]] Device usable_device(const Group& group, at::Device device, std::string_view what);

/// The elements of `tensor`. `what` is its role in the call, for messages: "input of all_gather".
/// Throws UsageError for a tensor that is undefined, sparse or not contiguous, and for a device or
/// dtype that is unsupported.
[[nodiscard]] TensorSpan span_of(const Group& group, const at::Tensor& tensor,
                                 std::string_view what);

/// Increments the version of `tensor`, so that autograd detects the write.
void note_write(const at::Tensor& tensor);

}  // namespace lockstep
