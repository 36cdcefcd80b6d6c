// How a call divides its data among ranks, for the transports of this room.
#pragma once

#include <algorithm>
#include <cstddef>

#include "lockstep/fabric/call.h"

namespace lockstep {

constexpr std::size_t kPieceLine = 64;  // bytes; shards and windows begin at whole lines

/// The part of a span that one rank reduces.
struct ByteShard {
  std::size_t begin = 0;  // bytes
  std::size_t bytes = 0;
};

[[nodiscard]] inline ByteShard shard_of(std::size_t total, int rank, int size) noexcept {
  const auto ranks = static_cast<std::size_t>(size);
  const auto length = ((total + ranks - 1) / ranks + kPieceLine - 1) / kPieceLine * kPieceLine;
  const auto begin = std::min(total, static_cast<std::size_t>(rank) * length);
  return {begin, std::min(length, total - begin)};
}

/// The input of a call: `count` pieces of `bytes` each. Rank r reads piece r of the inputs, or the
/// only one.
struct Pieces {
  Pieces(const Call& call, int size)
      : count(call.kind == Collective::reduce_scatter || call.kind == Collective::scatter ||
                      call.kind == Collective::all_to_all
                  ? size
                  : 1),
        bytes(static_cast<std::size_t>(call.count) * bytes_of(call.dtype)),
        one_source(call.kind == Collective::broadcast || call.kind == Collective::scatter) {}

  [[nodiscard]] int read_by(int rank) const noexcept { return count > 1 ? rank : 0; }
  /// The bytes of every piece that fit into a buffer of `buffer_bytes` together.
  [[nodiscard]] std::size_t window(std::size_t buffer_bytes) const noexcept {
    return std::max(kPieceLine,
                    buffer_bytes / static_cast<std::size_t>(count) / kPieceLine * kPieceLine);
  }

  int count;
  std::size_t bytes;
  bool one_source;  // only the root has an input
};

}  // namespace lockstep
