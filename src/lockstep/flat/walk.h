// Walks through flat memory: each reads every element once, and writes it at most once, on as many
// threads as LibTorch's own operators use. They take dense CPU tensors of float32, float64, float16
// or bfloat16, complex numbers as pairs. Results are the same on every processor and with any
// number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep {

/// to = from; true when an element is not finite. Tensors of other strides or dtypes are converted
/// first, sparse ones made dense.
bool copy_noting_non_finite(const at::Tensor& to, const at::Tensor& from);
/// to += from, likewise; true when a sum is not finite.
bool add_noting_non_finite(const at::Tensor& to, const at::Tensor& from);
[[nodiscard]] bool has_non_finite(const at::Tensor& flat);

/// The sum of the squares, in double.
[[nodiscard]] double squared_norm(const at::Tensor& flat);
/// flat *= factor; 16-bit types are multiplied in float and rounded once.
void scale(const at::Tensor& flat, double factor);
/// The same; true when an element was not finite before.
bool scale_noting_non_finite(const at::Tensor& flat, double factor);
/// Of the bytes (kernels/digest.h).
[[nodiscard]] std::uint64_t digest_of(const at::Tensor& flat);

}  // namespace lockstep
