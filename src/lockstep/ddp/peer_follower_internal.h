// How a rank without a batch takes part in the micro-batch of the others: in sit_out() it makes the
// calls that they enter in the groups of the Ddps of this thread, with neutral contributions, until
// all of them have ended their micro-batch. It learns from the control plane which calls they have
// entered; no call asks which ranks take part.
//
// A rank enters a barrier of its own group when its micro-batch has ended, or at once if it has no
// batch. Only ranks that sit out wait for that barrier. A call of a rank that has not
// entered it yet belongs to this micro-batch; other calls belong to later ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/synced_batch_norms_internal.h"

namespace lockstep {

/// The ends of the micro-batches of all ranks.
class MicroBatchEnds {
 public:
  /// Collective: makes a group of the ranks of `group`.
  explicit MicroBatchEnds(const ProcessGroup& group) : group_(group.split(0)) {}

  /// This rank's next micro-batch has ended. Does not wait.
  void end();
  /// Whether all ranks have ended the last micro-batch of this rank. Throws PeerError.
  [[nodiscard]] bool all_ended() { return last_.done(); }
  /// Waits for that. Throws PeerError.
  void wait(Deadline deadline) { last_.wait(deadline); }
  /// Whether `rank` has ended the last micro-batch of this rank.
  [[nodiscard]] bool has_ended(int rank) const;

 private:
  ProcessGroup group_;
  Work last_;
};

/// The groups of a Ddp in which other ranks may make calls during a micro-batch.
struct FollowedGroups {
  ProcessGroup gradients;                    // the program may use it in forward too
  std::shared_ptr<SyncedBatchNorms> synced;  // may be null
  at::Device device;                         // of the parameters
};

/// sit_out() on this thread follows the calls in `groups` too, for as long as they exist: one graph
/// may contain the models of several Ddps.
void follow_on_this_thread(const std::shared_ptr<FollowedGroups>& groups);

/// Makes the calls that other ranks enter in this micro-batch, in the groups of this thread.
/// Returns when all ranks have ended it. `own` are the groups of the Ddp that sits out, `ends` its
/// micro-batches. Calls `on_gradients` when a rank has reached the gradients in `own`.
/// Throws UsageError that names a call without a neutral contribution, PeerError.
void follow_peers(const std::shared_ptr<FollowedGroups>& own, MicroBatchEnds& ends,
                  const std::function<void()>& on_gradients);

/// Between two looks at the calls of other ranks, after `idle` looks without one. Calls are entered
/// in several groups, so no single one can wake this thread.
void pause_between_looks(int idle);

}  // namespace lockstep
