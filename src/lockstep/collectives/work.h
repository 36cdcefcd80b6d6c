// What a collective returns: work that has begun. Nothing works behind the caller's back (there is
// no thread): it goes on when the caller starts something else in the group, asks or waits.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/engine.h"

namespace lockstep {

class Work {
 public:
  /// Of nothing: done.
  Work() = default;
  Work(std::shared_ptr<Engine> engine, std::vector<std::shared_ptr<Operation>> operations);

  /// Returns when the work is done; its tensors can be used again then. Without a deadline the
  /// group's timeout counts from now.
  /// Throws PeerError, naming a rank, when it is lost, does not come in time, or makes another
  /// call: now, and whenever the group is used again.
  void wait();
  void wait(Deadline deadline);

  /// Goes on with what can be done without waiting; true when all is done. Throws as wait does.
  [[nodiscard]] bool done();

  /// The flags of all ranks, combined, of the last operation. The work is done.
  [[nodiscard]] const GroupFlags& flags() const;

 private:
  std::shared_ptr<Engine> engine_;  // shared: a group may go before its work
  std::vector<std::shared_ptr<Operation>> operations_;
};

}  // namespace lockstep
