// One copy of the parameters for all ranks of a host (Copies::per_host), in two memories in turn:
// the copy *in use*, which all ranks read, and the *next* one. A step of the optimizer reads the
// copy in use and writes the next one, each rank its shards; when all ranks have done so, every
// rank uses the next one. So nothing is sent, a rank that is still in backward() reads what it
// began with, and a rank that is killed inside a step leaves the copy in use as it was.
//
// The module's tensors see a private view of the copy in use (collectives/shared_region.h): a
// program that changes a parameter in place, on every rank, would otherwise apply the change once
// per rank. Such a change lies in pages that only this process has, and that no later step reaches:
// forget_writes() drops them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/layout.h"
#include "lockstep/flat/shards.h"

namespace lockstep {

class HostCopies {
 public:
  /// Collective. Throws UsageError for parameters on a GPU, and for ranks of several hosts.
  HostCopies(const ProcessGroup& group, const Layout& layout);

  /// The copy in use as the program sees it, and as all ranks share it: a whole segment. The memory
  /// of the first changes in switch_over(), its storage does not.
  [[nodiscard]] const at::Tensor& values(int segment) const { return of(segment).values; }
  [[nodiscard]] at::Tensor shared(int segment) const;
  /// How often code outside has got the shared memory of the copy in use (shared_region.h).
  [[nodiscard]] std::int64_t num_handed_out() const noexcept;
  /// The next copy. Its storage stays the same too.
  [[nodiscard]] const at::Tensor& next(int segment) const { return of(segment).next; }

  /// Copies this rank's shards of the copy in use to the next one.
  void copy_own(const Shards& shards) const;
  /// Whether the next copy has this rank's shards of the copy in use.
  [[nodiscard]] bool next_has_own(const Shards& shards) const;
  /// As Shards::update(), without sending: update(segment, part) writes all elements of the part's
  /// runs to the next copy.
  void update(const Shards& shards,
              const std::function<bool(int segment, const Shards::Part& part)>& update);
  /// All ranks have written the next copy: use it. Collective. Throws PeerError; the copy in use
  /// stays then.
  void switch_over();

  /// Drops what the program has written to values(), of both copies: it sees what all ranks share.
  void forget_writes() const noexcept;

  /// While writes are allowed, values() is the memory that all ranks share, not a view of it. For
  /// one rank, while the others do not read.
  void allow_writes(bool allowed);

 private:
  struct OfSegment {
    std::array<SharedRegion, 2> regions;
    at::Tensor values;
    at::Tensor next;
  };

  [[nodiscard]] const OfSegment& of(int segment) const {
    return copies_[static_cast<std::size_t>(segment)];
  }

  ProcessGroup group_;
  std::vector<OfSegment> copies_;  // by segment
  std::size_t in_use_ = 0;
};

}  // namespace lockstep
