// A tensor of which every rank holds a part: what an optimizer over shards gives to a checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// All ranks list the same tensors, with the same dtypes and sizes, in the same order. Each element
/// is held by exactly one rank.
struct ShardedTensor {
  /// The elements from `begin` on, in row-major order of the whole tensor.
  struct Piece {
    std::int64_t begin = 0;
    at::Tensor values;  // 1-D, contiguous: a view of the live state
  };

  std::string name;
  at::ScalarType dtype = at::ScalarType::Float;
  std::vector<std::int64_t> sizes = {};  // of the whole tensor
  std::vector<Piece> pieces = {};        // of this rank, ascending; may be empty
};
using ShardedTensors = std::vector<ShardedTensor>;

}  // namespace lockstep
