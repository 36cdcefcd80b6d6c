// A group with enqueued device work, as the watcher of the process sees it. The watcher is the one
// background thread of lockstep: the host may be inside a user's synchronize(), which a lost rank
// would block forever.
//
// All functions of WatchedGroup are thread-safe, and none takes the lock of the group: the thread
// that holds it may itself wait for the device.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/control_plane.h"

namespace lockstep {

class FileDescriptor;

class WatchedGroup {
 public:
  WatchedGroup() = default;
  WatchedGroup(const WatchedGroup&) = delete;
  WatchedGroup& operator=(const WatchedGroup&) = delete;
  virtual ~WatchedGroup() = default;

  struct Peer {
    int rank = 0;                                   // of the group
    std::shared_ptr<const FileDescriptor> process;  // a pidfd: readable once the process has ended
  };
  /// The other ranks in processes of their own. Fixed.
  [[nodiscard]] virtual const std::vector<Peer>& peers() const noexcept = 0;
  /// The deadline of the oldest operation whose work has not ended; nullopt if there is none.
  [[nodiscard]] virtual std::optional<Deadline> next_deadline() noexcept = 0;
  /// Called before the watcher sleeps, if there is no such operation: whether the group calls
  /// wake() at the next one. Otherwise the watcher looks again after its query interval: a wake per
  /// call would cost a system call, and a thread that queries the device beside the one that
  /// launches.
  [[nodiscard]] virtual bool may_sleep() noexcept { return true; }
  /// This process was stopped for `time` (SIGSTOP, Ctrl-Z): the deadlines are later by it.
  virtual void extend_deadlines(std::chrono::nanoseconds /*time*/) noexcept {}
  /// Whether a rank's process has ended without leaving the group, the deadline has passed, or the
  /// transport has an error; in words that name the rank.
  [[nodiscard]] virtual std::optional<Cause> find_cause() noexcept = 0;
  /// Notes the failure, which the next function of the group throws, and starts to release the
  /// enqueued work.
  virtual void fail(const Cause& cause) noexcept = 0;
  /// Continues to release it; returns whether the streams are empty. Call again after a
  /// millisecond.
  [[nodiscard]] virtual bool release() noexcept = 0;
};

class Watcher {
 public:
  Watcher() = default;
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  virtual ~Watcher() = default;

  virtual void add(WatchedGroup& group) = 0;
  /// Returns when the watcher no longer uses the group.
  virtual void remove(WatchedGroup& group) noexcept = 0;
  /// Called when a group that may sleep enqueues work: its next_deadline() has changed.
  virtual void wake() noexcept = 0;
};

}  // namespace lockstep
