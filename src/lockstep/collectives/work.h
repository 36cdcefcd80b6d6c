// The result of a collective: operations in flight. They advance when the caller starts another
// operation of the group, or calls done() or wait(). On one host no other thread advances them;
// between hosts a background thread does, while no caller is inside the library
// (docs/collectives.md).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/call_flags.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/ticks.h"

namespace lockstep {

class Group;
class Operation;

/// When this rank saw that all ranks had entered the call, and that the result was complete. The
/// rank looks when it starts an operation of the group, or calls done() or wait().
struct WorkTimes {
  Ticks all_entered = 0;
  Ticks done = 0;
};

class Work {
 public:
  /// Work without operations; it is done.
  Work() = default;
  Work(std::shared_ptr<Group> group, std::vector<std::shared_ptr<Operation>> operations);

  /// Waits for the result; for CUDA tensors only until all ranks have started the call. Returns
  /// when everything that the calling thread starts afterwards sees it: kernels that it enqueues on
  /// its current stream and, for CPU tensors, any access. Without a deadline the group's timeout
  /// applies, from this call on. Throws PeerError, naming the rank, when a rank has ended, does not
  /// arrive in time, or makes a different call. The group is then unusable.
  void wait();
  void wait(Deadline deadline);

  /// Returns when the host can read the result. For CPU tensors the same as wait(). Throws as
  /// wait().
  void synchronize();

  /// Advances the operations without waiting; returns whether the host can read all results. Throws
  /// as wait(). If a call on CUDA tensors fails on the device after wait(), the next call of the
  /// group throws.
  [[nodiscard]] bool done();

  /// The combined flags of all ranks, of the last operation. Valid once the work is done. Throws
  /// UsageError for Work without operations.
  [[nodiscard]] const GroupFlags& flags() const;

  /// The times of the operations, once the work is done; `all_entered` is that of the first one.
  /// Zero for messages and without operations; so is `done` of a small call that ended at once.
  [[nodiscard]] WorkTimes times() const noexcept;

 private:
  void wait_for_all(std::optional<Deadline> deadline);

  std::shared_ptr<Group> group_;  // shared: a ProcessGroup may be destroyed before its Work
  std::vector<std::shared_ptr<Operation>> operations_;
};

}  // namespace lockstep
