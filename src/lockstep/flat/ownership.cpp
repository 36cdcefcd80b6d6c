#include "lockstep/flat/ownership.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::int64_t round_down(std::int64_t bytes) { return bytes / kShardBlockBytes * kShardBlockBytes; }

// Where the trainable slots of a segment end, in bytes: each where the next one begins.
std::vector<std::int64_t> slot_ends(const Layout& layout, const Segment& segment,
                                    std::int64_t width) {
  std::vector<std::int64_t> ends;
  for (const int parameter : segment.parameters) {
    const auto begin = layout.slots[static_cast<std::size_t>(parameter)].begin;
    if (begin > 0 && begin < segment.trains_length) ends.push_back(begin * width);
  }
  if (segment.trains_length > 0) ends.push_back(segment.trains_length * width);
  return ends;
}

// Cuts [begin, end) into equal spans, if it is too long for one. The cuts are rounded down to
// blocks: a span may be one block longer than the others.
void add_spans(std::int64_t begin, std::int64_t end, std::vector<std::int64_t>& span_ends) {
  const auto longest = kMostSpanBytes - kShardBlockBytes;
  const auto count = end - begin <= kMostSpanBytes ? 1 : (end - begin + longest - 1) / longest;
  for (std::int64_t i = 1; i < count; ++i) {
    span_ends.push_back(round_down(begin + (end - begin) * i / count));
  }
  span_ends.push_back(end);
}

// The ends of a segment's spans, in bytes.
std::vector<std::int64_t> span_ends_of(const std::vector<std::int64_t>& slot_ends) {
  std::vector<std::int64_t> run_ends;  // runs of slots, each long enough for a span
  std::int64_t begin = 0;
  for (const auto end : slot_ends) {
    if (end - begin < kLeastSpanBytes) continue;
    run_ends.push_back(end);
    begin = end;
  }
  if (slot_ends.empty()) return {};
  // Slots that are left over join the last run.
  if (run_ends.empty()) run_ends.push_back(0);
  run_ends.back() = slot_ends.back();
  std::vector<std::int64_t> ends;
  begin = 0;
  for (const auto end : run_ends) {
    add_spans(begin, end, ends);
    begin = end;
  }
  return ends;
}

// Divides the blocks of [begin, end) among the ranks; `turn` is the first rank that has one more
// than others if they do not divide evenly.
std::vector<std::int64_t> shard_ends(std::int64_t begin, std::int64_t end, int num_ranks,
                                     std::int64_t& turn) {
  const auto first = begin / kShardBlockBytes;
  const auto blocks = (end + kShardBlockBytes - 1) / kShardBlockBytes - first;
  const auto each = blocks / num_ranks;
  const auto more = blocks % num_ranks;
  std::vector<std::int64_t> ends;
  auto block = first;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto place = (rank - turn + num_ranks) % num_ranks;
    block += each + (place < more ? 1 : 0);
    ends.push_back(std::clamp(block * kShardBlockBytes, begin, end));
  }
  turn = (turn + more) % num_ranks;
  return ends;
}

}  // namespace

Ownership plan_ownership(const Layout& layout, int num_ranks) {
  if (num_ranks < 1) {
    throw UsageError(fmt::format("ownership among {} ranks: at least one is required", num_ranks));
  }
  Ownership ownership{.num_ranks = num_ranks, .spans = {}};
  std::int64_t turn = 0;
  for (std::size_t i = 0; i < layout.segments.size(); ++i) {
    const auto& segment = layout.segments[i];
    const auto width = static_cast<std::int64_t>(c10::elementSize(segment.dtype));
    std::int64_t begin = 0;
    for (const auto end : span_ends_of(slot_ends(layout, segment, width))) {
      auto ends = shard_ends(begin, end, num_ranks, turn);
      for (auto& shard_end : ends) shard_end /= width;
      ownership.spans.push_back(
          {.segment = static_cast<int>(i), .begin = begin / width, .ends = std::move(ends)});
      begin = end;
    }
    if (segment.length == segment.trains_length) continue;
    const std::vector<std::int64_t> all_of_rank_0(static_cast<std::size_t>(num_ranks),
                                                  segment.length);
    ownership.spans.push_back({static_cast<int>(i), segment.trains_length, all_of_rank_0});
  }
  return ownership;
}

std::vector<OwnedRun> runs_of(const Ownership& ownership, int segment, int rank) {
  std::vector<OwnedRun> runs;
  std::int64_t packed = 0;
  for (const auto& span : ownership.spans) {
    const auto shard = span.shard(rank);
    if (span.segment != segment || shard.count == 0) continue;
    runs.push_back({.begin = shard.begin, .count = shard.count, .packed_begin = packed});
    packed += shard.count;
  }
  return runs;
}

std::int64_t packed_length(const Ownership& ownership, int segment, int rank) {
  const auto runs = runs_of(ownership, segment, rank);
  return runs.empty() ? 0 : runs.back().packed(runs.back().end());
}

std::int64_t longest_packed(const Ownership& ownership, int segment) {
  std::int64_t longest = 0;
  for (int rank = 0; rank < ownership.num_ranks; ++rank) {
    longest = std::max(longest, packed_length(ownership, segment, rank));
  }
  return longest;
}

std::span<const ShardedSpan> spans_in(const Ownership& ownership, int segment, std::int64_t begin,
                                      std::int64_t end) {
  const auto& spans = ownership.spans;
  const auto first = std::find_if(spans.begin(), spans.end(), [&](const ShardedSpan& span) {
    return span.segment == segment && span.begin >= begin;
  });
  const auto last = std::find_if(first, spans.end(), [&](const ShardedSpan& span) {
    return span.segment != segment || span.end() > end;
  });
  return {first, last};
}

Owners owners_of(std::span<const ShardedSpan> run, int width) {
  LOCKSTEP_ASSERT(!run.empty(), "owners of no spans");
  std::vector<OwnedPiece> pieces;
  const auto num_ranks = static_cast<int>(run.front().ends.size());
  auto expected = run.front().begin;
  for (const auto& span : run) {
    LOCKSTEP_ASSERT(span.begin == expected && span.segment == run.front().segment,
                    "spans that are not consecutive");
    expected = span.end();
    for (int rank = 0; rank < num_ranks; ++rank) {
      pieces.push_back({rank, span.shard(rank).count * width});
    }
  }
  return {num_ranks, pieces};
}

}  // namespace lockstep
