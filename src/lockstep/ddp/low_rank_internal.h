// The arithmetic of PowerSGD on batches of matrices. A thin matrix with r columns is stored
// transposed: r rows. All tensors are contiguous, of float32 or float64.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace lockstep {

/// Makes the rows of each matrix of `batch`, of shape [matrices, r, length], orthonormal, by
/// modified Gram-Schmidt. A row that is zero, or depends on the rows above it, becomes that of
/// `fallback`; zeros if that is undefined. NaN stays. On the CPU the result depends on the values
/// only.
void orthonormalize(const at::Tensor& batch, const at::Tensor& fallback);
/// The same with LibTorch's operators, on any device.
void orthonormalize_by_operators(const at::Tensor& batch, const at::Tensor& fallback);

/// For one matrix: result = leftᵀ · right, and residual = residual - weight · result
/// (kernels/low_rank_pass.h). `left` is [r, n], `right` [r, m]; the others have n · m elements, and
/// `result` may have 16-bit values.
void multiply_low_rank(const at::Tensor& left, const at::Tensor& right, double weight,
                       const at::Tensor& result, const at::Tensor& residual);

/// Random values with mean 0, about normal, a function of (seed, name, step).
[[nodiscard]] at::Tensor random_rows(std::int64_t rows, std::int64_t length, std::uint64_t seed,
                                     std::string_view name, std::int64_t step);

}  // namespace lockstep
