// New values that wait until all ranks have theirs: for sharded gradients with one copy of the
// parameters per rank, on the CPU and one host.
//
// A step writes its new values over the averages of the rank's shards, which no rank needs any
// more. When all ranks have done so, they send them to each other. So a rank that is lost before
// leaves the old values, and one that is lost after it leaves all new ones in memory that outlives
// it: the others read them there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/collectives/shared_region.h"
#include "lockstep/flat/layout.h"
#include "lockstep/flat/shards.h"

namespace lockstep {

class StagedValues {
 public:
  /// Whether the ranks of `group` can read each other's memory.
  [[nodiscard]] static bool fits(const ProcessGroup& group, const Layout& layout);
  /// Collective.
  StagedValues(const ProcessGroup& group, const Layout& layout, const Ownership& ownership);

  /// Packed memory of this rank (shards.h).
  [[nodiscard]] const at::Tensor& own(int segment) const {
    const auto rank = static_cast<std::size_t>(group_.rank());
    return stages_[static_cast<std::size_t>(segment)].of_rank[rank];
  }

  /// As Shards::update(): update(segment, part) writes all elements of the part's runs to own(),
  /// the old ones where no rank changes the part. If this throws PeerError, `values` are all old or
  /// all new.
  void update(Shards& shards, std::span<const at::Tensor> values,
              const std::function<bool(int segment, const Shards::Part& part)>& update);

 private:
  struct Stage {
    SharedRegion memory;
    std::vector<at::Tensor> of_rank;
  };

  /// Copies elements that `rank` updates from its memory to `values`, which is the segment.
  void copy(int segment, std::span<const OwnedRun> runs, int rank, const at::Tensor& values) const;
  void read_all(std::span<const at::Tensor> values) const;

  ProcessGroup group_;
  Ownership ownership_;
  std::vector<Stage> stages_;  // by segment
};

}  // namespace lockstep
