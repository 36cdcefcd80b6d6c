#include "lockstep/flat/staged_values.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/moved_bytes.h"

namespace lockstep {

bool StagedValues::fits(const ProcessGroup& group, const Layout& layout) {
  return group.backend() == "shm" && layout.is_on_cpu();
}

StagedValues::StagedValues(const ProcessGroup& group, const Layout& layout,
                           const Ownership& ownership)
    : group_(group), ownership_(ownership) {
  for (int i = 0; i < static_cast<int>(layout.segments.size()); ++i) {
    const auto dtype = layout.segments[static_cast<std::size_t>(i)].dtype;
    const auto longest = longest_packed(ownership, i);
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
    Shards& shards, std::span<const at::Tensor> values,
    const std::function<bool(int segment, const Shards::Part& part)>& update) {
  std::vector<bool> is_changed;  // by part
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    for (const auto& part : shards.parts(i)) is_changed.push_back(update(i, part));
  }
  group_.barrier({.name = "new parameters"}).wait();
  auto next = is_changed.begin();
  const auto send = [&](int segment, const Shards::Part& part) {
    if (!*next++) return false;
    copy(segment, part.runs, group_.rank(), values[static_cast<std::size_t>(segment)]);
    return true;
  };
  try {
    shards.update(values, send);
  } catch (const PeerError&) {
    read_all(values);
    throw;
  }
}

void StagedValues::read_all(std::span<const at::Tensor> values) const {
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    for (int rank = 0; rank < group_.size(); ++rank) {
      copy(i, runs_of(ownership_, i, rank), rank, values[static_cast<std::size_t>(i)]);
    }
  }
}

void StagedValues::copy(int segment, std::span<const OwnedRun> runs, int rank,
                        const at::Tensor& values) const {
  const auto& from =
      stages_[static_cast<std::size_t>(segment)].of_rank[static_cast<std::size_t>(rank)];
  for (const auto& run : runs) {
    const auto bytes = static_cast<std::uint64_t>(run.count) * from.element_size();
    note_moved({.loaded = bytes, .stored = bytes});
    values.narrow(0, run.begin, run.count).copy_(from.narrow(0, run.packed_begin, run.count));
  }
}

}  // namespace lockstep
