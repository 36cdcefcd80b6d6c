// The watcher of this process.
#pragma once

#include <chrono>
#include <memory>

#include "lockstep/gpu/watched.h"

namespace lockstep {

struct WatcherOptions {
  // While work is enqueued: an error of NCCL has no descriptor that would wake the watcher.
  std::chrono::milliseconds query_interval{100};
};

/// A watcher with a thread of its own. The thread sleeps until a group has enqueued work; then
/// until a process of its ranks ends, its deadline passes, or the query interval is over, and so on
/// until no group has had work for an interval. When a group has a cause to fail, the thread calls
/// fail(), and then release() until it returns true.
[[nodiscard]] std::shared_ptr<Watcher> make_watcher(const WatcherOptions& options = {});

/// The watcher that all groups of this process share. It exists while one of them holds it.
[[nodiscard]] std::shared_ptr<Watcher> watcher_of_process();

}  // namespace lockstep
