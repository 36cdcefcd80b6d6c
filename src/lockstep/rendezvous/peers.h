// Whether the processes of a group's other ranks still run, as the kernel says.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/rendezvous/process_identity.h"

namespace lockstep {

/// The pidfds of the processes that some group of this process watches, one for each: groups of
/// many ranks would need as many descriptors each. Safe from any thread.
class ProcessWatches {
 public:
  /// Closed where the process had ended before. Throws SystemError.
  [[nodiscard]] std::shared_ptr<const FileDescriptor> watch(const ProcessIdentity& process);

 private:
  std::mutex mutex_;
  std::map<pid_t, std::pair<std::int64_t, std::weak_ptr<const FileDescriptor>>> watched_;  // mutex_
};

class Peers {
 public:
  /// `processes` of all ranks, this one's among them. A process that has already ended counts as
  /// dead. Throws SystemError.
  Peers(std::span<const ProcessIdentity> processes, ProcessWatches& watches);

  /// True when the rank's process has ended, reaped or not.
  [[nodiscard]] bool dead(int rank) const;
  [[nodiscard]] pid_t process(int rank) const {
    return processes_[static_cast<std::size_t>(rank)].process;
  }
  /// "pid 4711", and what keeps it from running where something does: "pid 4711, stopped by a
  /// signal".
  [[nodiscard]] std::string describe(int rank) const;

 private:
  std::vector<ProcessIdentity> processes_;
  std::vector<std::shared_ptr<const FileDescriptor>> descriptors_;
};

}  // namespace lockstep
