// The arithmetic of batch normalization over a batch that is divided among ranks. Pure functions on
// tensors of any device.
//
// Terms: n is the number of values per channel, x the input with channels in dimension 1. Each rank
// subtracts a *shift* of its own from every channel, a value of its input, before it sums anything:
// what is left is as large as the deviation, so that a large mean cancels no digits. The *moments*
// are n, the mean and the sum of squared deviations from it, in float64.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep {

/// The input of a rank, prepared.
struct ShiftedInput {
  at::Tensor values;       // x − shift; float32 for 16-bit x; in x's memory format
  at::Tensor shift;        // by channel, float64
  std::int64_t count = 0;  // n
};
[[nodiscard]] ShiftedInput shifted(const at::Tensor& x);

/// One rank's moments in one tensor: n, then the means, then the sums of squared deviations.
[[nodiscard]] at::Tensor moments_of(const ShiftedInput& input);
/// The moments of a rank without values.
[[nodiscard]] at::Tensor no_moments(std::int64_t channels, at::Device device);

/// The mean and the biased variance of each channel over all ranks, float64.
struct BatchStatistics {
  at::Tensor mean;
  at::Tensor variance;
};
/// Merges the moments of all ranks, one row each, along the tree of kernels/leaf_tree.h. The rows
/// are equal on all ranks, so the result is bit-identical on all ranks.
[[nodiscard]] BatchStatistics merged(const at::Tensor& moments);

/// What the normalization of `input` and its backward use: all by channel, in the dtype of
/// input.values.
struct Normalization {
  at::Tensor offset;  // the mean of the whole batch − shift
  at::Tensor variance;
  at::Tensor inverse_deviation;
  double eps = 0;
};
[[nodiscard]] Normalization normalization_of(const BatchStatistics& statistics,
                                             const at::Tensor& shift, double eps,
                                             at::ScalarType dtype);

/// (values − offset) × inverse_deviation × weight + bias; weight and bias may be undefined.
[[nodiscard]] at::Tensor normalized(const at::Tensor& values, const Normalization& by,
                                    const at::Tensor& weight, const at::Tensor& bias);

/// Sums over this rank's values, by channel, float64: those of the gradient (row 0), and of the
/// gradient × the normalized input (row 1). They are also the gradients of bias and weight.
[[nodiscard]] at::Tensor gradient_sums(const at::Tensor& gradient, const at::Tensor& values,
                                       const Normalization& by);
/// The gradient of the input, from `sums` over all ranks and the n of all ranks together.
[[nodiscard]] at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& values,
                                        const Normalization& by, const at::Tensor& weight,
                                        const at::Tensor& sums, std::int64_t count);

}  // namespace lockstep
