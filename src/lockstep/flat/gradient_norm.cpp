#include "lockstep/flat/gradient_norm.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/flat/device_walk.h"
#include "lockstep/flat/parallel.h"
#include "lockstep/flat/with_elements_internal.h"

namespace lockstep {
namespace {

// A piece, and its blocks counted over all pieces: threads divide blocks among themselves.
struct CountedPiece {
  const GradientPiece* piece;
  std::int64_t block;  // elements
  std::int64_t end;    // behind its last element, in the segment
  std::size_t first_block;
  std::size_t end_block;
};

std::vector<CountedPiece> counted(const NormGrid& grid, std::span<const GradientPiece> pieces) {
  std::vector<CountedPiece> all;
  std::size_t blocks = 0;
  for (const auto& piece : pieces) {
    const auto block = grid.block(piece.segment);
    const auto end = piece.begin + piece.gradients.numel();
    LOCKSTEP_ASSERT(
        grid.is_border(piece.segment, piece.begin) && grid.is_border(piece.segment, end),
        "a cell has one owner");
    with_elements(piece.gradients, [](auto) {});  // refuses other dtypes before threads start
    const auto count = static_cast<std::size_t>((end + block - 1) / block - piece.begin / block);
    all.push_back({&piece, block, end, blocks, blocks + count});
    blocks += count;
  }
  return all;
}

// Blocks [first, end) of all pieces, as far as they are in this piece.
void square_blocks(const NormGrid& grid, const CountedPiece& counted, std::size_t first,
                   std::size_t end, std::span<double> cells) {
  if (first >= counted.end_block || end <= counted.first_block) return;
  const auto& piece = *counted.piece;
  const auto at_block = [&](std::size_t block) {  // its first element in the segment
    const auto behind = static_cast<std::int64_t>(block - counted.first_block);
    return (piece.begin / counted.block + behind) * counted.block;
  };
  const auto from = first <= counted.first_block ? piece.begin : at_block(first);
  const auto to = end >= counted.end_block ? counted.end : at_block(end);
  // A complex number is a pair.
  const auto parts = static_cast<std::size_t>(piece.gradients.is_complex() ? 2 : 1);
  const auto set = best_instruction_set();
  with_elements(piece.gradients, [&]<typename T>(std::span<T> elements) {
    for (const auto& part : grid.slot_parts(piece.segment, {from, to - from})) {
      const auto first_end = std::min((part.begin / counted.block + 1) * counted.block, part.end);
      const auto num_cells = (part.end - 1) / counted.block - part.begin / counted.block + 1;
      const auto in_values = [&](std::int64_t count) {
        return static_cast<std::size_t>(count) * parts;
      };
      const auto values = std::span<const T>(elements).subspan(in_values(part.begin - piece.begin),
                                                               in_values(part.end - part.begin));
      const auto sums = cells.subspan(static_cast<std::size_t>(part.first_cell),
                                      static_cast<std::size_t>(num_cells));
      dispatch<SquaresLoops, T>(
          set, [&](auto loops) { loops.cells(values, in_values(first_end - part.begin), sums); });
    }
  });
}

}  // namespace

void square_cells(const NormGrid& grid, std::span<const GradientPiece> pieces,
                  std::span<double> cells) {
  const auto all = counted(grid, pieces);
  if (all.empty()) return;
  constexpr std::size_t kUnit = kCellElements<float>;  // in_parts counts elements
  in_parts(all.back().end_block * kUnit, kUnit, [&](std::size_t begin, std::size_t end) {
    for (const auto& piece : all) square_blocks(grid, piece, begin / kUnit, end / kUnit, cells);
  });
}

void square_cells(const FlatParameters& flat, const NormGrid& grid,
                  std::span<const GradientPiece> pieces, std::span<double> cells) {
  std::vector<GradientPiece> here;
  for (const auto& piece : pieces) {
    if (!piece.gradients.is_cuda()) {
      here.push_back(piece);
      continue;
    }
    const auto sums = cells_on_device(flat, grid, {&piece, 1}).cpu();
    const auto* const from = sums.const_data_ptr<double>();
    const ElementRange elements{piece.begin, piece.gradients.numel()};
    for (const auto& run : grid.cell_runs(piece.segment, elements)) {
      std::copy_n(from + run.first_cell, run.count,
                  cells.begin() + static_cast<std::ptrdiff_t>(run.first_cell));
    }
  }
  square_cells(grid, here, cells);
}

}  // namespace lockstep
