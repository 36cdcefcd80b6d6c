// GELU with the tanh approximation, as in GPT-2, for any model. On x86-64 LibTorch 2.11 spends a
// sixth of a small GPT's step on GELU. On aarch64, where its kernel computes value by value, it
// spends a third; this kernel takes a seventh of that time. It is more accurate near zero.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// at::gelu(x, "tanh") for a tensor of any shape, layout and device; differentiable twice. In
/// float32 and bfloat16 on the CPU it is computed by kernels/gelu_pass.h: as accurate as
/// LibTorch's, not bitwise equal to it, and bit-identical on every processor and with any number of
/// threads.
[[nodiscard]] at::Tensor gelu_by_tanh(const at::Tensor& x);

}  // namespace lockstep
