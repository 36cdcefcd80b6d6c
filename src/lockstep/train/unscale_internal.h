// The pass of a GradScaler over gradients: multiplies, and sees in the same pass whether any value
// was no finite number before.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Multiplies every value with `factor`. Returns whether all were finite before. float32, float64
/// and bfloat16, of any strides and on any device; a sparse tensor by its values. Throws UsageError
/// for other types.
[[nodiscard]] bool unscale_tensor(at::Tensor& values, float factor);

}  // namespace lockstep
