// The calls of a group that a CUDA graph contains. They are entered once, while the graph is
// captured, and a replay executes them on the device without the host. So every replay is a call of
// its own: the ranks meet before it, and the group watches them until it has ended.
#pragma once

#include "lockstep/collectives/process_group.h"

namespace lockstep {

class CapturedCalls {
 public:
  explicit CapturedCalls(const ProcessGroup& group) : group_(group) {}

  /// While `allowed`, calls on a stream that is being captured become part of the graph. Otherwise
  /// they throw UsageError, as do calls over another backend than nccl.
  void allow(bool allowed) const noexcept;
  /// Returns when all ranks are about to replay their graphs, on the current stream of `device`,
  /// which waits for the earlier calls of the group. Throws PeerError, with the rank that has
  /// ended, is late or makes another call.
  void enter_replay(at::Device device) const;
  /// The replay is enqueued on that stream. If it does not end within the group's timeout, or a
  /// rank ends meanwhile, the group fails as in any other call. Later calls of the group follow it.
  void note_replay(at::Device device) const;

 private:
  ProcessGroup group_;
};

}  // namespace lockstep
