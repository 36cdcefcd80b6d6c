#include "lockstep/flat/shards.h"

#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/collectives/gather_values.h"

namespace lockstep {
namespace {

// The shard of one rank in a part: small enough that it is still in the processor's cache when the
// other ranks read it.
constexpr std::int64_t kPartBytesPerRank = 512 << 10;
// Calls at a time; a group takes 64.
constexpr std::size_t kMostCalls = 16;

int width_of(at::ScalarType dtype) { return c10::isComplexType(dtype) ? 2 : 1; }

std::vector<int> same_ranks(const ProcessGroup& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// By rank of `old`, which rank of `group` it is now. The ranks tell it each other: those of another
// world may have other numbers there.
std::vector<int> ranks_in(const ProcessGroup& group, const ProcessGroup& old) {
  const auto were = gather_values(group, static_cast<std::int64_t>(old.rank()),
                                  {.name = "earlier ranks of the shards"});
  std::vector<int> ranks;
  for (int rank = 0; rank < old.size(); ++rank) {
    const auto found = std::find(were.begin(), were.end(), rank);
    if (found == were.end()) {
      throw UsageError(fmt::format(
          "rank {} is not in the new group, and with it the optimizer's state of its shards is "
          "lost: resume from a checkpoint",
          old.global_rank(rank)));
    }
    ranks.push_back(static_cast<int>(found - were.begin()));
  }
  return ranks;
}

// A GPU steps a whole segment with one launch.
std::int64_t least_part(const Segment& segment, int num_ranks) {
  if (segment.device.is_cuda()) return std::numeric_limits<std::int64_t>::max();
  return kPartBytesPerRank * num_ranks / static_cast<std::int64_t>(c10::elementSize(segment.dtype));
}

// Without their runs.
std::vector<Shards::Part> parts_of(const Ownership& ownership, const Layout& layout, int number) {
  const auto& segment = layout.segments[static_cast<std::size_t>(number)];
  const auto least = least_part(segment, ownership.num_ranks);
  const auto spans = spans_in(ownership, number, 0, segment.length);
  std::vector<Shards::Part> parts;
  for (std::size_t first = 0; first < spans.size();) {
    auto next = first;
    while (next < spans.size() &&
           (next == first || spans[next - 1].end() - spans[first].begin < least)) {
      ++next;
    }
    const auto run = spans.subspan(first, next - first);
    const ElementRange range{run.front().begin, run.back().end() - run.front().begin};
    parts.push_back(
        {.range = range,
         .runs = {},
         .owners = std::make_shared<const Owners>(owners_of(run, width_of(segment.dtype)))});
    first = next;
  }
  return parts;
}

}  // namespace

Shards::Shards(const Layout& layout, const ProcessGroup& group, Shard kind)
    : kind_(kind),
      group_(group),
      segments_(layout.segments),
      ownership_(plan_ownership(layout, kind == Shard::none ? 1 : group.size())) {
  for (int i = 0; i < static_cast<int>(layout.segments.size()); ++i) {
    const auto length = layout.segments[static_cast<std::size_t>(i)].length;
    const bool whole = kind == Shard::none;
    runs_.push_back(whole ? std::vector<OwnedRun>{{0, length, 0}}
                          : runs_of(ownership_, i, group.rank()));
    parts_.push_back(whole
                         ? std::vector<Part>{{.range = {0, length}, .runs = {}, .owners = nullptr}}
                         : parts_of(ownership_, layout, i));
    for (auto& part : parts_.back()) {
      part.runs = runs_within(i, part.range.begin, part.range.count);
    }
  }
}

std::int64_t Shards::packed_length(int segment) const {
  const auto all = runs(segment);
  return all.empty() ? 0 : all.back().packed_begin + all.back().count;
}

std::vector<OwnedRun> Shards::runs_within(int segment, std::int64_t begin,
                                          std::int64_t count) const {
  std::vector<OwnedRun> within;
  for (const auto& run : runs(segment)) {
    const auto first = std::max(run.begin, begin);
    const auto length = std::min(run.end(), begin + count) - first;
    if (length > 0) within.push_back({first, length, run.packed(first)});
  }
  return within;
}

at::Tensor Shards::make_packed(int segment, at::ScalarType dtype) const {
  const auto length = packed_length(segment);
  const auto device = segments_[static_cast<std::size_t>(segment)].device;
  if (!is_sharded()) return at::zeros({length}, at::dtype(dtype).device(device));
  // All ranks allocate the same number of bytes.
  const auto bytes =
      longest_packed(ownership_, segment) * static_cast<std::int64_t>(c10::elementSize(dtype));
  return group_.allocate(bytes, device).view(dtype).narrow(0, 0, length);
}

std::shared_ptr<const Owners> Shards::owners_in(const ProcessGroup& group, int segment,
                                                std::int64_t begin, std::int64_t count) const {
  const auto rank_there = &group == &group_ ? same_ranks(group) : ranks_in(group, group_);
  std::vector<OwnedPiece> pieces;
  for (const auto& span : ownership_.spans) {
    for (int rank = 0; rank < ownership_.num_ranks && span.segment == segment; ++rank) {
      const auto shard = span.shard(rank);
      const auto first = std::max(shard.begin, begin);
      const auto length = std::min(shard.begin + shard.count, begin + count) - first;
      if (length > 0) pieces.push_back({rank_there[static_cast<std::size_t>(rank)], length});
    }
  }
  return std::make_shared<const Owners>(group.size(), pieces);
}

at::Tensor Shards::gather(int segment, const at::Tensor& packed, std::int64_t begin,
                          std::int64_t count) const {
  auto whole = at::zeros({count}, packed.options());
  for (const auto& run : runs_within(segment, begin, count)) {
    whole.narrow(0, run.begin - begin, run.count)
        .copy_(packed.narrow(0, run.packed_begin, run.count));
  }
  if (!is_sharded() || count == 0) return whole;
  const auto owners = owners_in(group_, segment, begin, count);
  group_.gather_from_owners(whole, owners, {.name = "shards"}).wait();
  return whole;
}

at::Tensor Shards::redistribute(const Shards& old, int segment, const at::Tensor& packed) const {
  const auto& whole = segments_[static_cast<std::size_t>(segment)];
  auto all = at::zeros({whole.length}, packed.options());
  for (const auto& run : old.runs(segment)) {
    all.narrow(0, run.begin, run.count).copy_(packed.narrow(0, run.packed_begin, run.count));
  }
  if (old.is_sharded() && whole.length > 0) {
    const auto owners = old.owners_in(group_, segment, 0, whole.length);
    group_.gather_from_owners(all, owners, {.name = "shards"}).wait();
  }
  auto moved = make_packed(segment, packed.scalar_type());
  for (const auto& run : runs(segment)) {
    moved.narrow(0, run.packed_begin, run.count).copy_(all.narrow(0, run.begin, run.count));
  }
  return moved;
}

void Shards::update(std::span<const at::Tensor> values,
                    const std::function<bool(int segment, const Part& part)>& update,
                    const std::function<void(int segment, const Part& part)>& keep) {
  std::deque<Work> calls;
  const auto wait_for_first = [&] {
    // On a GPU wait() returns when all ranks have begun the call, and a rank may be lost after
    // that.
    if (group_.size() > 1) {
      calls.front().synchronize();
    } else {
      calls.front().wait();
    }
    calls.pop_front();
  };
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    for (const auto& part : parts(i)) {
      const bool is_changed = update(i, part);
      if (!is_changed && keep) keep(i, part);
      if (!is_changed || part.owners == nullptr) continue;
      auto range =
          values[static_cast<std::size_t>(i)].narrow(0, part.range.begin, part.range.count);
      if (range.is_complex()) range = at::view_as_real(range);
      calls.push_back(group_.gather_from_owners(range, part.owners, {.name = "new parameters"}));
      if (calls.size() == kMostCalls) wait_for_first();
    }
  }
  while (!calls.empty()) wait_for_first();
}

}  // namespace lockstep
