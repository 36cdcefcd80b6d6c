// The pass of a GradScaler over gradients: multiplies them and finds non-finite values in the same
// pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Multiplies every value by `factor`.
/// Returns whether all values were finite before. Takes float32, float64 and bfloat16, of any
/// strides and on any device, dense or sparse.
/// Throws UsageError for other dtypes.
[[nodiscard]] bool unscale_tensor(at::Tensor& values, float factor);

}  // namespace lockstep
