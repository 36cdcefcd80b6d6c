// The sums of squares of gradients, cell by cell (norm_grid.h), on LibTorch's intra-op threads or
// on the gradients' GPU. Two steps, so that ranks which have different shards can exchange the
// cells between them: square_cells() adds this rank's squares to cells that are zero, and
// total_of_cells() adds the cells, which with shards one call has shared. The norm is the root of
// this total.
//
// device_walk.h has both steps for gradients on one GPU, without waiting for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/norm_grid.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {

/// The gradients of consecutive elements of a segment, from element `begin`. Both ends are borders
/// of cells.
struct GradientPiece {
  int segment = 0;
  std::int64_t begin = 0;
  at::Tensor gradients = {};  // dense and one-dimensional; in any memory
};

/// Writes the sum of squares of each cell of `pieces` to cells[its number]. Other elements of
/// `cells`, which has grid.num_cells(), do not change. Waits for the device if gradients are on a
/// GPU.
void square_cells(const FlatParameters& flat, const NormGrid& grid,
                  std::span<const GradientPiece> pieces, std::span<double> cells);
/// The same for gradients on the CPU.
void square_cells(const NormGrid& grid, std::span<const GradientPiece> pieces,
                  std::span<double> cells);

}  // namespace lockstep
