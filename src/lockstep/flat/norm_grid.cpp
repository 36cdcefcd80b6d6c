#include "lockstep/flat/norm_grid.h"

#include <c10/core/ScalarType.h>

#include <algorithm>

#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

static_assert(kCellBytes == kShardBlockBytes, "a cell must have one owner");

std::int64_t blocks_of(std::int64_t length, std::int64_t block) {
  return (length + block - 1) / block;
}

}  // namespace

NormGrid::NormGrid(const Layout& layout) {
  for (const auto& segment : layout.segments) {
    const auto width = static_cast<std::int64_t>(c10::elementSize(segment.dtype));
    auto& column = columns_.emplace_back();
    column.block = kShardBlockBytes / width;
    column.trains_length = segment.trains_length;
    for (const int parameter : segment.parameters) {
      const auto& slot = layout.slots[static_cast<std::size_t>(parameter)];
      column.slots.push_back({slot.begin, slot.begin + slot.count});
    }
  }
  // A slot that begins inside a block has one number more than the slots before it leave.
  for (auto& column : columns_) {
    const auto trains =
        std::count_if(column.slots.begin(), column.slots.end(),
                      [&](const SlotEnds& slot) { return slot.begin < column.trains_length; });
    column.trainable_offset = num_trainable_cells_;
    num_trainable_cells_ += blocks_of(column.trains_length, column.block) + trains;
    column.trainable_end = num_trainable_cells_;
  }
  num_cells_ = num_trainable_cells_;
  for (auto& column : columns_) {
    const auto frozen =
        std::find_if(column.slots.begin(), column.slots.end(),
                     [&](const SlotEnds& slot) { return slot.begin >= column.trains_length; });
    if (frozen == column.slots.end()) continue;
    const auto first_key = (frozen - column.slots.begin()) + frozen->begin / column.block;
    const auto num_slots = column.slots.end() - frozen;
    column.frozen_offset = num_cells_ - first_key;
    num_cells_ +=
        blocks_of(column.slots.back().end, column.block) - frozen->begin / column.block + num_slots;
  }
}

bool NormGrid::is_border(int segment, std::int64_t element) const {
  const auto& column = at(segment);
  if (element % column.block == 0) return true;
  // In no slot, or at the begin of one.
  const auto slot = std::partition_point(column.slots.begin(), column.slots.end(),
                                         [&](const auto& each) { return each.end <= element; });
  return slot == column.slots.end() || slot->begin >= element;
}

std::vector<NormGrid::SlotPart> NormGrid::slot_parts(int segment, ElementRange elements) const {
  const auto& column = at(segment);
  const auto end = elements.begin + elements.count;
  auto slot = std::partition_point(column.slots.begin(), column.slots.end(),
                                   [&](const auto& each) { return each.end <= elements.begin; });
  std::vector<SlotPart> parts;
  for (; slot != column.slots.end() && slot->begin < end; ++slot) {
    const auto first = std::max(slot->begin, elements.begin);
    if (first >= slot->end) continue;
    const auto offset =
        slot->begin < column.trains_length ? column.trainable_offset : column.frozen_offset;
    parts.push_back({.begin = first,
                     .end = std::min(slot->end, end),
                     .first_cell = offset + (slot - column.slots.begin()) + first / column.block});
  }
  return parts;
}

std::vector<NormGrid::CellRun> NormGrid::cell_runs(int segment, ElementRange elements) const {
  const auto& column = at(segment);
  std::vector<CellRun> runs;
  for (const auto& part : slot_parts(segment, elements)) {
    const bool trains = part.begin < column.trains_length;
    const auto offset = trains ? column.trainable_offset : column.frozen_offset;
    const auto end =
        part.first_cell + (part.end - 1) / column.block - part.begin / column.block + 1;
    if (runs.empty() || runs.back().first_cell - runs.back().first_key != offset) {
      runs.push_back({.first_key = part.first_cell - offset, .first_cell = part.first_cell});
    }
    runs.back().count = end - runs.back().first_cell;
  }
  return runs;
}

std::int64_t NormGrid::first_trainable_cell(int segment, std::int64_t element) const {
  const auto& column = at(segment);
  const auto slot = std::partition_point(column.slots.begin(), column.slots.end(),
                                         [&](const auto& each) { return each.end <= element; });
  if (slot == column.slots.end() || slot->begin >= column.trains_length) {
    return column.trainable_end;
  }
  return column.trainable_offset + (slot - column.slots.begin()) +
         std::max(slot->begin, element) / column.block;
}

Owners owners_of_cells(const NormGrid& grid, const Ownership& ownership) {
  std::vector<OwnedPiece> pieces;
  std::int64_t covered = 0;
  for (const auto& span : ownership.spans) {
    for (int rank = 0; rank < ownership.num_ranks; ++rank) {
      const auto shard = span.shard(rank);
      const auto end = grid.first_trainable_cell(span.segment, shard.begin + shard.count);
      pieces.push_back({rank, end - covered});
      covered = end;
    }
  }
  pieces.push_back({0, grid.num_cells() - covered});  // of frozen slots
  return {ownership.num_ranks, pieces};
}

}  // namespace lockstep
