// The pass of a GradScaler over gradients that lie in one piece: multiplies, and sees in the same
// pass whether any value was no finite number before.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace lockstep {

/// Multiplies every value with `factor`. Returns whether all were finite before.
[[nodiscard]] bool unscale_span(std::span<float> values, float factor) noexcept;
[[nodiscard]] bool unscale_span(std::span<double> values, float factor) noexcept;
/// In float, rounded to the nearest.
[[nodiscard]] bool unscale_span(std::span<at::BFloat16> values, float factor) noexcept;

/// The same for a tensor of one of these types, of any strides and on any device; a sparse one by
/// its values. Throws UsageError for other types.
[[nodiscard]] bool unscale_tensor(at::Tensor& values, float factor);

}  // namespace lockstep
