// Sums of squares in double, for norms of gradients, in one fixed order.
//
// Words: a *cell* is a run of at most 4 KiB. The squares of a cell are added in 16 lanes: element i
// of the cell to lane i mod 16. Lanes are then added by halves: lane i to lane i + 8, then i + 4,
// and so on. Cells are added in 256 lanes per run of 4096 cells, and these sums in 256 lanes again.
// A cell of zeros, or one that is left out, does not change a sum. So the total depends on where
// cells begin, and not on the thread, the rank or the device that sums a cell.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

constexpr std::size_t kCellBytes = 4096;
constexpr std::size_t kCellLanes = 16;
constexpr std::size_t kTotalLanes = 256;
constexpr std::size_t kTotalRun = 4096;  // cells

/// The most elements of a cell.
template <typename Stored>
constexpr std::size_t kCellElements = kCellBytes / sizeof(Stored);

/// The number of runs of `num_cells` cells.
[[nodiscard]] constexpr std::size_t num_runs(std::size_t num_cells) {
  return (num_cells + kTotalRun - 1) / kTotalRun;
}

/// `Stored` is float, double, Float16 or BFloat16.
template <InstructionSet, typename Stored>
struct SquaresLoops {
  /// The sums of neighboring cells: the first `lead` values are one cell, and each kCellElements
  /// behind them, of which the last may be shorter. `lead` is at least 1 and at most the number of
  /// values; `sums` has one element per cell.
  static void cells(std::span<const Stored> values, std::size_t lead,
                    std::span<double> sums) noexcept;
};

template <InstructionSet>
struct TotalLoops {
  /// The sum of at most kTotalRun cells, or of any number of sums of runs.
  [[nodiscard]] static double lanes(std::span<const double> sums) noexcept;
};

/// The sum of all cells.
[[nodiscard]] double total_of_cells(std::span<const double> cells);

}  // namespace lockstep
