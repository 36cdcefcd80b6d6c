#include "lockstep/flat/staged_values.h"

#include <algorithm>
#include <deque>

#include "lockstep/base/error.h"
#include "lockstep/kernels/moved_bytes.h"

namespace lockstep {
namespace {

std::int64_t packed_length(const Ownership& ownership, int segment, int rank) {
  const auto runs = runs_of(ownership, segment, rank);
  return runs.empty() ? 0 : runs.back().packed_begin + runs.back().count;
}

}  // namespace

bool StagedValues::fits(const ProcessGroup& group, const Layout& layout) {
  return group.backend() == "shm" &&
         std::all_of(layout.segments.begin(), layout.segments.end(),
                     [](const Segment& segment) { return segment.device.is_cpu(); });
}

StagedValues::StagedValues(const ProcessGroup& group, const Layout& layout,
                           const Ownership& ownership)
    : group_(group), ownership_(ownership) {
  for (int i = 0; i < static_cast<int>(layout.segments.size()); ++i) {
    const auto dtype = layout.segments[static_cast<std::size_t>(i)].dtype;
    std::int64_t longest = 0;
    for (int rank = 0; rank < group.size(); ++rank) {
      longest = std::max(longest, packed_length(ownership, i, rank));
    }
    constexpr std::int64_t kLine = 128;  // ranks share no cache lines
    const auto bytes =
        (longest * static_cast<std::int64_t>(c10::elementSize(dtype)) + kLine - 1) / kLine * kLine;
    Stage stage{group.allocate_shared(bytes * group.size()), {}};
    for (int rank = 0; rank < group.size(); ++rank) {
      stage.of_rank.push_back(stage.memory.shared()
                                  .narrow(0, rank * bytes, bytes)
                                  .view(dtype)
                                  .narrow(0, 0, packed_length(ownership, i, rank)));
    }
    stages_.push_back(std::move(stage));
  }
}

void StagedValues::update(
    const Shards& shards, std::span<const at::Tensor> values,
    const std::function<bool(int segment, const Shards::Part& part)>& update) {
  std::vector<Changed> changed;
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    for (const auto& part : shards.parts(i)) {
      if (update(i, part)) changed.push_back({i, &part});
    }
  }
  group_.barrier({.name = "new parameters"}).wait();
  try {
    send(changed, values);
  } catch (const PeerError&) {
    read_all(changed, values);
    throw;
  }
}

void StagedValues::send(std::span<const Changed> changed,
                        std::span<const at::Tensor> values) const {
  constexpr std::size_t kMostCalls = 4;
  std::deque<Work> calls;
  const auto wait_for_first = [&] {
    calls.front().wait();
    calls.pop_front();
  };
  for (const auto& each : changed) {
    const auto& segment = values[static_cast<std::size_t>(each.segment)];
    copy(each, group_.rank(), segment);
    const auto& part = *each.part;
    if (part.owners == nullptr) continue;
    auto range = segment.narrow(0, part.range.begin, part.range.count);
    calls.push_back(group_.gather_from_owners(range, part.owners, {.name = "new parameters"}));
    if (calls.size() == kMostCalls) wait_for_first();
  }
  while (!calls.empty()) wait_for_first();
}

void StagedValues::read_all(std::span<const Changed> changed,
                            std::span<const at::Tensor> values) const {
  for (const auto& each : changed) {
    for (int rank = 0; rank < group_.size(); ++rank) {
      copy(each, rank, values[static_cast<std::size_t>(each.segment)]);
    }
  }
}

void StagedValues::copy(const Changed& changed, int rank, const at::Tensor& values) const {
  const auto& [begin, count] = changed.part->range;
  const auto& from =
      stages_[static_cast<std::size_t>(changed.segment)].of_rank[static_cast<std::size_t>(rank)];
  for (const auto& run : runs_of(ownership_, changed.segment, rank)) {
    const auto first = std::max(run.begin, begin);
    const auto length = std::min(run.end(), begin + count) - first;
    if (length <= 0) continue;
    const auto bytes = static_cast<std::uint64_t>(length) * from.element_size();
    note_moved({.loaded = bytes, .stored = bytes});
    values.narrow(0, first, length).copy_(from.narrow(0, run.packed(first), length));
  }
}

}  // namespace lockstep
