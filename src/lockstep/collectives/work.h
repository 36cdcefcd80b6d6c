// The result of a collective: operations in flight. There is no background thread: the operations
// advance when the caller starts another operation of the group, or calls done() or wait().
#pragma once

#include <memory>
#include <vector>

#include "lockstep/base/call_flags.h"
#include "lockstep/base/deadline.h"

namespace lockstep {

class Group;
class Operation;

class Work {
 public:
  /// Work without operations; it is done.
  Work() = default;
  Work(std::shared_ptr<Group> group, std::vector<std::shared_ptr<Operation>> operations);

  /// Waits for the result. Returns when everything that the calling thread starts afterwards sees
  /// it: kernels that it enqueues on its current stream and, for CPU tensors, any access. Without a
  /// deadline the group's timeout applies, from this call on.
  /// Throws PeerError, naming the rank, when a rank has ended, does not arrive in time, or makes
  /// a different call.
  /// The group is then unusable.
  void wait();
  void wait(Deadline deadline);

  /// Returns when the host can read the result. For CPU tensors the same as wait(). Throws as
  /// wait().
  void synchronize();

  /// Advances the operations without waiting; returns whether all are done. Throws as wait().
  [[nodiscard]] bool done();

  /// The combined flags of all ranks, of the last operation. Valid once the work is done. Throws
  /// UsageError for Work without operations.
  [[nodiscard]] const GroupFlags& flags() const;

 private:
  std::shared_ptr<Group> group_;  // shared: a ProcessGroup may be destroyed before its Work
  std::vector<std::shared_ptr<Operation>> operations_;
};

}  // namespace lockstep
