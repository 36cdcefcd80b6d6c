// The pieces of tensors that one rank stages for a file, and their places in it. A pure function of
// the file's tensors, the rank and the number of ranks, except that it checks what
// sharded_tensors() returned.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/checkpoint/staging.h"

namespace lockstep {

/// Elements of a tensor, in row-major order.
struct TensorPiece {
  std::uint64_t position = 0;  // of the first element, in the file
  at::Tensor tensor;
  std::int64_t begin = 0;  // the first element
  std::int64_t count = 0;

  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(count) * tensor.element_size();
  }
  /// The elements as a tensor: a view if the tensor is contiguous or the piece is all of it, else a
  /// copy.
  [[nodiscard]] at::Tensor values() const;
};

struct FilePieces {
  std::vector<std::byte> head;      // length and header; empty if another rank writes them
  std::uint64_t file_bytes = 0;     // of the whole file
  std::vector<TensorPiece> pieces;  // ascending
};

/// The pieces of `file` that its rank stages:
///   - of a sharded tensor, the pieces that this rank has,
///   - of tensors that are equal on all ranks, 1/num_ranks of their bytes: the r-th of num_ranks
///     consecutive stretches, cut at multiples of 4 KiB in the file,
///   - on rank 0, the head of the file and the tensors of which rank 0's values count.
/// Throws UsageError for an unsupported tensor and an invalid piece.
[[nodiscard]] FilePieces pieces_of(const FileToStage& file);

}  // namespace lockstep
