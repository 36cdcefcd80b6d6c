// Tensors as engines see them: a span of bytes and what its elements are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/kernels/dtype.h"

namespace lockstep {

struct TensorSpan {
  DType dtype = DType::uint8;
  std::span<std::byte> bytes = {};
};

/// The elements of `tensor`. `what` is its place in the call: "input", "output".
/// Throws UsageError for a tensor that is undefined, not on the CPU, sparse, not contiguous, or of
/// a dtype that collectives do not know.
[[nodiscard]] TensorSpan span_of(const at::Tensor& tensor, std::string_view what);

/// Tells autograd that `tensor` is about to be written to.
void note_write(const at::Tensor& tensor);

}  // namespace lockstep
