// One run at a time writes to a folder of checkpoints, also when several hosts mount it. The lock
// is one on the bytes of the file run.lock in it (an open file description lock), which NFSv4 and
// the common cluster file systems keep on their server; the kernel, or the server after its lease,
// releases it when the process or the host is gone. The file stays, and alone means nothing.
#pragma once

#include <memory>
#include <string>

namespace lockstep {

inline constexpr char kLockName[] = "run.lock";

/// What an attempt to lock a folder came to.
struct FolderLock {
  std::shared_ptr<const void> held = {};  // locked until this goes; null: another has it
  std::string owner = {};    // that other, as it has named itself: "process 41 on host alpha"
  std::string missing = {};  // why there is no lock although the folder may be used; empty: it is
};

/// Locks `folder`, which exists, and writes host and process into its run.lock. Does not wait.
/// Throws SystemError when the file cannot be made or locked, UsageError when it is no regular
/// file. A file system that has no such locks is named in `missing`.
[[nodiscard]] FolderLock lock_folder(const std::string& folder);

}  // namespace lockstep
