// Whether the processes of a group's other ranks still run, as the kernel says.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class Peers {
 public:
  /// `processes` of all ranks, this one's among them. A process that has already ended counts as
  /// dead. Throws SystemError.
  explicit Peers(std::span<const pid_t> processes);

  /// True when the rank's process has ended, reaped or not.
  [[nodiscard]] bool dead(int rank) const;
  [[nodiscard]] pid_t process(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }
  /// "pid 4711", and what keeps it from running where something does: "pid 4711, stopped by a
  /// signal".
  [[nodiscard]] std::string describe(int rank) const;

 private:
  std::vector<pid_t> processes_;
  std::vector<FileDescriptor> descriptors_;  // pidfds; closed: the process was gone from the start
};

}  // namespace lockstep
