// GELU as GPT-2 computes it, by tanh. LibTorch 2.11 takes a sixth of a small GPT's step for it on
// x86-64, and on aarch64, where its kernel computes value by value, a third, of which this one
// takes a seventh. It is nearer to the true value where that is near zero.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::models {

/// at::gelu(x, "tanh"). In float32 and bfloat16 on the CPU computed our own way, in float32: as
/// near to the true value, and not bit for bit the same.
[[nodiscard]] at::Tensor gelu_by_tanh(const at::Tensor& x);

}  // namespace lockstep::models
