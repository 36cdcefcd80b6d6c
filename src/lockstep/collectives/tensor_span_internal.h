// Tensors as groups see them: a span of bytes, what its elements are, and where it lies.
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

/// The one place that asks a backend whether it can use memory of a device.
/// Throws UsageError, naming `what` ("input of all_gather"), when it cannot.
[[nodiscard]] Device usable_device(const Group& group, at::Device device, std::string_view what);

/// The elements of `tensor`. `what` is its place in the call: "input of all_gather".
/// Throws UsageError for a tensor that is undefined, on a device that `group` cannot use, sparse,
/// not contiguous, or of a dtype that collectives do not know.
[[nodiscard]] TensorSpan span_of(const Group& group, const at::Tensor& tensor,
                                 std::string_view what);

/// Tells autograd that `tensor` is about to be written to.
void note_write(const at::Tensor& tensor);

}  // namespace lockstep
