// For tests. Every collective, operation and kind of memory of one dtype, against the oracle.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/fabric/test_calls_internal.h"

namespace lockstep {

// Counts per rank of one dtype, on both sides of the one-shot threshold.
inline std::vector<std::int64_t> counts_around(std::size_t threshold, DType dtype, int size) {
  const auto at = static_cast<std::int64_t>(threshold / bytes_of(dtype));
  return {0, 1, at / size, at, at + 1};
}

inline void check_all(Group& group, std::size_t threshold, DType dtype) {
  const CallMemory memory(group, 64U << 10);
  std::uint64_t seed = 0;
  const auto check = [&](Collective kind, ReduceOp op, int root) {
    for (const auto count : counts_around(threshold, dtype, group.size())) {
      for (const auto where : kMemoryKinds) {
        const auto form = ++seed % 2 == 0 && can_be_in_place(kind) ? Form::in_place : Form::apart;
        const Call call{.kind = kind, .dtype = dtype, .op = op, .root = root, .count = count};
        CheckedCall(group, call, form, memory.span(where), seed).wait();
      }
    }
  };
  for (const auto kind : kDataCollectives) {
    for (const auto op : kReduceOps) {
      if (!reduces(kind) && op != ReduceOp::sum) continue;
      if (reduces(kind) && !is_valid_reduction(dtype, op)) continue;
      check(kind, op, static_cast<int>(seed % static_cast<std::uint64_t>(group.size())));
    }
  }
}

}  // namespace lockstep
