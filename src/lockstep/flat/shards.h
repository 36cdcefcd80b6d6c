// The elements of the flat buffers that this rank updates, and how the new values of all ranks
// reach each other. Without shards these are all elements, and nothing is sent.
//
// With shards (ZeRO-1) a rank has whole gradients until they are reduced. Then it has the average
// of its own shards only (ownership.h), and `.grad` is undefined: is_averaged() says which
// parameters have a gradient. An optimizer updates the rank's shards; the other ranks receive them.
// With sharded gradients (ZeRO-2) there is no memory for whole gradients: the averages of the
// rank's shards are in packed memory, and what is not averaged yet is in loose slots
// (gradient_slot.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/base/owners.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/layout.h"
#include "lockstep/flat/ownership.h"

namespace lockstep {

/// What the ranks divide among themselves. It changes no result by a bit.
enum class Shard {
  none,       // every rank updates all parameters
  optimizer,  // ZeRO-1: each rank updates its shards, and has the optimizer's state of these only.
              // Steps of the optimizer become collective
  gradients,  // ZeRO-2: also, each rank has the averaged gradients of its shards only
};

/// How many copies of the parameters there are.
enum class Copies {
  per_rank,  // one in each rank, which receives the new values of the others
  per_host,  // one for all ranks of a host, which is read by all and written by the owners of
             // shards (host_copies.h). For parameters on the CPU and ranks of one host; needs
             // shards
};

class Shards {
 public:
  /// Consecutive elements of a segment that are updated, then sent, before the next ones.
  struct Part {
    ElementRange range = {};
    std::vector<OwnedRun> runs = {};            // of this rank
    std::shared_ptr<const Owners> owners = {};  // of the range; null without shards
  };

  Shards(const Layout& layout, const ProcessGroup& group, Shard kind);

  [[nodiscard]] Shard kind() const noexcept { return kind_; }
  [[nodiscard]] bool is_sharded() const noexcept { return kind_ != Shard::none; }
  [[nodiscard]] bool packs_gradients() const noexcept { return kind_ == Shard::gradients; }
  /// Of one rank, without shards.
  [[nodiscard]] const Ownership& ownership() const noexcept { return ownership_; }

  /// The parts of a segment, ascending: all its elements.
  [[nodiscard]] std::span<const Part> parts(int segment) const {
    return parts_[static_cast<std::size_t>(segment)];
  }
  /// The elements of a segment that this rank updates: the runs of all parts.
  [[nodiscard]] std::span<const OwnedRun> runs(int segment) const {
    return runs_[static_cast<std::size_t>(segment)];
  }
  /// Those of them that lie in [begin, begin + count), cut to it.
  [[nodiscard]] std::vector<OwnedRun> runs_within(int segment, std::int64_t begin,
                                                  std::int64_t count) const;
  /// The number of elements of runs().
  [[nodiscard]] std::int64_t packed_length(int segment) const;

  // Packed memory holds one element for each that this rank updates, such as an optimizer's state
  // and, with Shard::gradients, averaged gradients.
  // These three are collective with shards.

  /// Zeros, on the device of the segment. With shards they are in registered memory, which outlives
  /// its rank.
  [[nodiscard]] at::Tensor make_packed(int segment, at::ScalarType dtype) const;
  /// Elements [begin, begin + count) of the segment, which `packed` holds on all ranks together.
  [[nodiscard]] at::Tensor gather(int segment, const at::Tensor& packed, std::int64_t begin,
                                  std::int64_t count) const;
  /// Packed memory of these shards with the elements of `packed`, which is that of `old` shards of
  /// the same layout. Throws UsageError if a rank of `old` is not in the group of these shards: its
  /// elements are lost.
  [[nodiscard]] at::Tensor redistribute(const Shards& old, int segment,
                                        const at::Tensor& packed) const;

  /// Calls update(segment, part) for each part; `values` are the segments. It changes elements of
  /// the part's runs, and returns whether any rank changes the part. Returns when all ranks have
  /// the new values. Collective if is_sharded(): every rank calls this, and `update` returns the
  /// same everywhere. Throws PeerError when a rank is lost: `values` may be a mixture of old and
  /// new ones then.
  /// keep(segment, part) is called for a part that no rank changes: it copies the part if `values`
  /// do not hold it.
  void update(std::span<const at::Tensor> values,
              const std::function<bool(int segment, const Part& part)>& update,
              const std::function<void(int segment, const Part& part)>& keep = {});

 private:
  /// The owners of elements [begin, begin + count) among the ranks of `group`, which may be another
  /// one.
  [[nodiscard]] std::shared_ptr<const Owners> owners_in(const ProcessGroup& group, int segment,
                                                        std::int64_t begin,
                                                        std::int64_t count) const;

  Shard kind_;
  ProcessGroup group_;
  std::vector<Segment> segments_;
  Ownership ownership_;
  std::vector<std::vector<Part>> parts_;     // by segment
  std::vector<std::vector<OwnedRun>> runs_;  // by segment
};

}  // namespace lockstep
