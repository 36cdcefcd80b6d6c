// Single-pass operations over flat buffers: each reads every element once and writes it at most
// once, on LibTorch's intra-op threads or on the tensor's GPU. They take dense tensors of float32,
// float64, float16 or bfloat16; complex numbers count as pairs. Results are bit-identical on every
// processor, with any number of threads, and on GPUs. They throw UsageError for other dtypes.
//
// On a GPU, work is enqueued on the device's current stream. Functions that return a number wait
// for the device (device_walk.h has some that do not); the two that copy and add do not wait, and
// therefore return false there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep {

/// to = from. Returns whether an element of `from` is non-finite. A `from` of other strides or
/// dtype is converted first; a sparse one is made dense.
bool copy_noting_non_finite(const at::Tensor& to, const at::Tensor& from);
/// to += from, with the same conversions. Returns whether a sum is non-finite.
bool add_noting_non_finite(const at::Tensor& to, const at::Tensor& from);
[[nodiscard]] bool has_non_finite(const at::Tensor& flat);

/// The sum of the squares, in double, in the order of kernels/squares.h; cells begin at multiples
/// of 4 KiB. The norm of a model's gradients is added in another order: norm_grid.h.
[[nodiscard]] double squared_norm(const at::Tensor& flat);
/// flat *= factor. 16-bit types are multiplied in float32 and rounded once.
void scale(const at::Tensor& flat, double factor);
/// The same. Returns whether an element was non-finite before.
bool scale_noting_non_finite(const at::Tensor& flat, double factor);
/// The digest of the bytes (kernels/digest.h).
[[nodiscard]] std::uint64_t digest_of(const at::Tensor& flat);

}  // namespace lockstep
