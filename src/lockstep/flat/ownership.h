// Which rank owns which elements of the flat buffers: a pure function of the layout and the number
// of ranks.
//
// Words: a *span* is a run of trainable slots of one segment, or a part of a long slot, of 256 KiB
// to 32 MiB. Its *shards* are one run of elements per rank, in the order of the ranks.
//
// Small slots are merged into spans and long ones are cut. Spans begin where a slot begins, or at a
// multiple of 4 KiB of the segment; inside a span, shards begin at such multiples only. So the part
// of a slot that lies in one block of 4 KiB has one owner. The shards of a span differ by at most
// one block; the ranks take turns at the larger ones. A span with fewer blocks than ranks leaves
// some ranks without a shard. A call on a run of whole spans gives every rank its shard of each.
//
// The frozen slots of a segment are one more span, of rank 0: they rarely train later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/owners.h"
#include "lockstep/flat/layout.h"

namespace lockstep {

constexpr std::int64_t kLeastSpanBytes = 256 << 10;  // a segment with less has one span
constexpr std::int64_t kMostSpanBytes = 32 << 20;
constexpr std::int64_t kShardBlockBytes = 4 << 10;

struct ShardedSpan {
  int segment = 0;
  std::int64_t begin = 0;          // elements of the segment
  std::vector<std::int64_t> ends;  // of the shards, by rank: elements of the segment

  [[nodiscard]] std::int64_t end() const { return ends.back(); }
  [[nodiscard]] ElementRange shard(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    const auto first = index == 0 ? begin : ends[index - 1];
    return {first, ends[index] - first};
  }

  friend bool operator==(const ShardedSpan&, const ShardedSpan&) = default;
};

struct Ownership {
  int num_ranks = 1;
  std::vector<ShardedSpan> spans;  // by segment, then by position

  friend bool operator==(const Ownership&, const Ownership&) = default;
};

/// The spans cover the elements of each segment once.
/// Throws UsageError for no ranks.
[[nodiscard]] Ownership plan_ownership(const Layout& layout, int num_ranks);

/// Elements [begin, begin + count) of a segment, and where they are in memory that holds only the
/// runs of one rank, one after the other.
struct OwnedRun {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t packed_begin = 0;

  [[nodiscard]] std::int64_t end() const { return begin + count; }
  /// Where element `element` of the segment is in packed memory.
  [[nodiscard]] std::int64_t packed(std::int64_t element) const {
    return packed_begin + element - begin;
  }

  friend bool operator==(const OwnedRun&, const OwnedRun&) = default;
};

/// The shards of `rank` in `segment`, ascending.
[[nodiscard]] std::vector<OwnedRun> runs_of(const Ownership& ownership, int segment, int rank);

/// The number of elements in the runs of `rank` in `segment`.
[[nodiscard]] std::int64_t packed_length(const Ownership& ownership, int segment, int rank);
/// The largest packed_length() of all ranks.
[[nodiscard]] std::int64_t longest_packed(const Ownership& ownership, int segment);

/// The spans of `segment` that lie in its elements [begin, end). They are consecutive.
[[nodiscard]] std::span<const ShardedSpan> spans_in(const Ownership& ownership, int segment,
                                                    std::int64_t begin, std::int64_t end);

/// The owners of consecutive spans of one segment, for a call on their elements. Elements are
/// counted from the begin of the first span. At least one span.
/// `width` is the number of elements of the call per element of the segment: 2 for complex numbers,
/// which calls see as pairs.
[[nodiscard]] Owners owners_of(std::span<const ShardedSpan> run, int width = 1);

}  // namespace lockstep
