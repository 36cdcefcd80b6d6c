// A gradient in the form of its slot.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// `from` with the dtype and strides of `to`: itself, or a converted copy. A sparse tensor becomes
/// dense.
[[nodiscard]] at::Tensor like(const at::Tensor& to, const at::Tensor& from);

}  // namespace lockstep
