// GELU as GPT-2 computes it, by tanh, in the way that is quick on this machine.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::models {

/// What at::gelu(x, "tanh") gives; in bfloat16, where it is computed in float32 and rounded once,
/// within one unit in the last place of it.
[[nodiscard]] at::Tensor gelu_by_tanh(const at::Tensor& x);

}  // namespace lockstep::models
