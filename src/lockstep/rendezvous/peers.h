// Detects through the kernel whether the processes of a group's other ranks still run.
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

/// The pidfds of all processes that the groups of this process watch, one per process: without
/// sharing, every group would need one descriptor per rank. Thread-safe.
class ProcessWatches {
 public:
  /// A pidfd of `process`; an empty descriptor if the process has already ended. Throws
  /// SystemError.
  [[nodiscard]] std::shared_ptr<const FileDescriptor> watch(const ProcessIdentity& process);

 private:
  std::mutex mutex_;
  std::map<pid_t, std::pair<std::int64_t, std::weak_ptr<const FileDescriptor>>> watched_;  // mutex_
};

class Peers {
 public:
  /// `processes` are those of all ranks, including this one. A process that has already ended
  /// counts as dead. Throws SystemError.
  Peers(std::span<const ProcessIdentity> processes, ProcessWatches& watches);

  /// True when the rank's process has ended, reaped or not.
  [[nodiscard]] bool dead(int rank) const;
  [[nodiscard]] pid_t process(int rank) const {
    return processes_[static_cast<std::size_t>(rank)].process;
  }
  /// "pid 4711", with the reason if the process is not running: "pid 4711, stopped by a signal".
  [[nodiscard]] std::string describe(int rank) const;

 private:
  std::vector<ProcessIdentity> processes_;
  std::vector<std::shared_ptr<const FileDescriptor>> descriptors_;
};

}  // namespace lockstep
