// GELU as GPT-2 computes it, by tanh, for any model. LibTorch 2.11 takes a sixth of a small GPT's
// step for it on x86-64, and on aarch64, where its kernel computes value by value, a third, of
// which this one takes a seventh. It is nearer to the true value where that is near zero.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// at::gelu(x, "tanh") for a tensor of any shape, layout and device; autograd knows its gradient,
/// and that gradient's. In float32 and bfloat16 on the CPU it is computed by kernels/gelu_pass.h:
/// as near to the true value as LibTorch's, not bitwise equal to it. The bits depend neither on the
/// processor nor on the number of threads.
[[nodiscard]] at::Tensor gelu_by_tanh(const at::Tensor& x);

}  // namespace lockstep
