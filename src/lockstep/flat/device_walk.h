// Operations over CUDA tensors whose results stay on the device, for later passes. They run on the
// current stream of the tensors' device and never wait. Results are bit-identical to those of
// walk.h on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/gradient_norm.h"

namespace lockstep {

/// Whether all `ranges` are on one GPU; false if there is none.
[[nodiscard]] bool are_on_one_device(const FlatParameters& flat, std::span<const FlatRange> ranges);

/// The sums of squares of all cells of `pieces`, which are on one GPU: grid.num_cells() doubles, 0
/// where `pieces` have no cell. At least one piece.
[[nodiscard]] at::Tensor cells_on_device(const FlatParameters& flat, const NormGrid& grid,
                                         std::span<const GradientPiece> pieces);
/// The norm of gradients from the sums of all cells: three doubles, a DeviceNorm
/// (kernels/device_passes.h).
[[nodiscard]] at::Tensor norm_on_device(const at::Tensor& cells, double max_norm);

/// Multiplies the gradients in `ranges` by the clip factor of `norm`, unless it is at least 1.
void clip_on_device(const FlatParameters& flat, std::span<const FlatRange> ranges,
                    const at::Tensor& norm);

/// Divides a dense tensor by the scale of `scaler`, the bytes of a DeviceScaler, and notes in it
/// whether a value was non-finite.
void unscale_on_device(const at::Tensor& values, const at::Tensor& scaler);

/// An int32 flag: 1 if a value of the dense tensor is non-finite.
[[nodiscard]] at::Tensor non_finite_on_device(const at::Tensor& values);
/// The sum of the squares, a double.
[[nodiscard]] at::Tensor squared_norm_on_device(const at::Tensor& values);
/// The digest of the bytes [begin, end) of a tensor, as an int64; `begin` is a multiple of 8. The
/// same as digest() of those bytes.
[[nodiscard]] at::Tensor digest_on_device(const at::Tensor& memory, std::int64_t begin,
                                          std::int64_t end);

}  // namespace lockstep
