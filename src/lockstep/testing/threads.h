// Ranks as threads of one process: the quick way to test what many ranks do together, and the one
// in which the thread sanitizer sees all of them. processes.h is the true one.
#pragma once

#include <chrono>
#include <functional>

#include "lockstep/testing/rank.h"

namespace lockstep::testing {

struct ThreadsOptions {
  std::chrono::milliseconds limit{240'000};  // a run that takes longer is taken for a hang
};

/// Calls `body` once for each rank from 0 to `size` - 1, each on a thread of its own.
/// Returns when every call has. A call that hangs cannot be ended alone: when the limit passes, the
/// process writes every rank's last note, kernel state and stack to standard error and ends with
/// kHungExitStatus (watchdog.h).
/// Throws PeerError when bodies have thrown, whatever they threw: its rank is the first of them,
/// its message has a line for each.
void run_ranks_as_threads(int size, const std::function<void(Rank&)>& body,
                          const ThreadsOptions& options = {});

}  // namespace lockstep::testing
