// What a collective returns: work that has begun. No thread works behind the caller's back: the
// work continues when the caller starts something else in the group, asks or waits.
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
  /// Of nothing: done.
  Work() = default;
  Work(std::shared_ptr<Group> group, std::vector<std::shared_ptr<Operation>> operations);

  /// Returns when what the calling thread starts from here on sees the result: kernels that it
  /// enqueues on its current stream, and on the CPU everything. Without a deadline the group's
  /// timeout counts from now.
  /// Throws PeerError, naming a rank, when that rank is lost, does not come in time, or makes
  /// another call: now, and whenever the group is used again.
  void wait();
  void wait(Deadline deadline);

  /// Returns when the host can read the result. For tensors of the CPU the same as wait().
  void synchronize();

  /// Continues with what can be done without waiting; true when all is done. Throws as wait does.
  [[nodiscard]] bool done();

  /// The flags of all ranks, combined, of the last operation. The work is done.
  [[nodiscard]] const GroupFlags& flags() const;

 private:
  std::shared_ptr<Group> group_;  // shared: a ProcessGroup may go before its work
  std::vector<std::shared_ptr<Operation>> operations_;
};

}  // namespace lockstep
