// Ensures that one run at a time writes to a folder of checkpoints, also if several hosts mount it.
// The lock is an open file description lock on the bytes of the file run.lock. NFSv4 and the common
// cluster file systems keep such locks on the server. The kernel, or the server after its lease,
// releases the lock when the process or the host ends. The file remains; without a lock it has no
// effect.
#pragma once

#include <memory>
#include <string>

namespace lockstep {

inline constexpr char kLockName[] = "run.lock";

/// The result of an attempt to lock a folder.
struct FolderLock {
  std::shared_ptr<const void> held = {};  // holds the lock; null: another process has it
  std::string owner = {};    // if `held` is null, the other process: "process 41 on host alpha"
  std::string missing = {};  // if not empty: the file system does not support locks, and the error
};

/// Locks `folder`, which must exist, and writes host and process id into its run.lock. Does not
/// wait. Throws SystemError if the file cannot be created or locked, UsageError if it is not a
/// regular file. If the file system does not support such locks, `held` and `missing` are set.
[[nodiscard]] FolderLock lock_folder(const std::string& folder);

}  // namespace lockstep
