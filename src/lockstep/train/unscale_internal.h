// The pass of a GradScaler over gradients: multiplies them and finds non-finite values in the same
// pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Multiplies every value by `factor`.
/// Returns whether all values were finite before. Takes float32, float64 and bfloat16, of any
/// strides, dense or sparse, on the CPU.
/// Throws UsageError for other dtypes.
[[nodiscard]] bool unscale_tensor(at::Tensor& values, float factor);
/// The same on a GPU, without waiting: `scaler` is the DeviceScaler that has the factor and
/// receives the note.
void unscale_tensor_on_device(at::Tensor& values, const at::Tensor& scaler);

}  // namespace lockstep
