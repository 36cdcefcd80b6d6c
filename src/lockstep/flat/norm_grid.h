// The order in which the squares of all gradients are added: a pure function of the layout.
//
// Words: a *block* is 4 KiB of a segment. A *cell* is the part of a slot that lies in one block.
// The squares of a cell are summed first, then the cells by their numbers (kernels/squares.h).
//
// Shards begin where a slot begins or at a block (ownership.h), so a cell has one owner. Each rank
// sums the cells of its shards; when all ranks have all sums, they add them. The norm is therefore
// bit-identical for every number of ranks, with and without shards, with any number of threads, and
// whichever other parameters have a gradient: a cell without one is 0.
//
// Cell numbers ascend with the position in the segment, so those of consecutive elements are
// consecutive. The cell of the segment's slot i in block b has number i + b, plus a constant of the
// segment: it is found without a table. A number may have no cell; there is at most one such number
// per slot. Trainable slots have the first numbers, segment by segment, then frozen ones.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/owners.h"
#include "lockstep/flat/layout.h"
#include "lockstep/flat/ownership.h"

namespace lockstep {

class NormGrid {
 public:
  /// Elements [begin, end) of one slot. `first_cell` is the number of the cell of `begin`.
  struct SlotPart {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t first_cell = 0;
  };
  /// `count` consecutive numbers. The cell of slot i in block b has number
  /// first_cell + i + b - first_key.
  struct CellRun {
    std::int64_t first_key = 0;
    std::int64_t first_cell = 0;
    std::int64_t count = 0;
  };

  explicit NormGrid(const Layout& layout);

  /// Cells have numbers below this.
  [[nodiscard]] std::int64_t num_cells() const noexcept { return num_cells_; }
  /// Cells of trainable slots have numbers below this.
  [[nodiscard]] std::int64_t num_trainable_cells() const noexcept { return num_trainable_cells_; }

  /// The elements of a block of `segment`.
  [[nodiscard]] std::int64_t block(int segment) const { return at(segment).block; }
  /// Whether no cell of `segment` has elements on both sides of `element`.
  [[nodiscard]] bool is_border(int segment, std::int64_t element) const;

  /// The parts of `elements` that are in slots, ascending. Empty slots have none.
  [[nodiscard]] std::vector<SlotPart> slot_parts(int segment, ElementRange elements) const;
  /// All numbers that cells of `elements` have: one run for trainable slots, one for frozen ones.
  [[nodiscard]] std::vector<CellRun> cell_runs(int segment, ElementRange elements) const;

  /// The first number of the cells at or behind `element`, a border, among the trainable slots of
  /// `segment`; behind the last of them, where the numbers of the next segment begin.
  [[nodiscard]] std::int64_t first_trainable_cell(int segment, std::int64_t element) const;

 private:
  struct SlotEnds {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  struct Column {  // of a segment
    std::int64_t block = 1;
    std::int64_t trains_length = 0;
    std::vector<SlotEnds> slots = {};  // ascending
    std::int64_t trainable_offset = 0;
    std::int64_t trainable_end = 0;  // behind its last trainable number
    std::int64_t frozen_offset = 0;
  };

  [[nodiscard]] const Column& at(int segment) const {
    return columns_[static_cast<std::size_t>(segment)];
  }

  std::vector<Column> columns_;  // by segment
  std::int64_t num_cells_ = 0;
  std::int64_t num_trainable_cells_ = 0;
};

/// The owners of all num_cells() numbers, for a call on the sums of the cells.
[[nodiscard]] Owners owners_of_cells(const NormGrid& grid, const Ownership& ownership);

}  // namespace lockstep
