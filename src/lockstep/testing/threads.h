// Ranks as threads of one process: the fast way to test several ranks together, and the only one in
// which the thread sanitizer sees all ranks. Users run ranks as processes (processes.h).
#pragma once

#include <chrono>
#include <functional>

#include "lockstep/testing/rank.h"

namespace lockstep::testing {

struct ThreadsOptions {
  std::chrono::milliseconds limit{240'000};  // a run that takes longer counts as a hang
};

/// Calls `body` once for each rank from 0 to `size` - 1, each on a thread of its own.
/// Returns when all calls have returned. A thread that hangs cannot be ended alone: when the limit
/// expires, the process writes the last note, kernel state and stack of every rank to standard
/// error and ends with kHungExitStatus (watchdog.h).
/// Throws PeerError when a body has thrown, whatever its type. PeerError::rank() is the first such
/// rank; the message has one line per failed rank.
void run_ranks_as_threads(int size, const std::function<void(Rank&)>& body,
                          const ThreadsOptions& options = {});

}  // namespace lockstep::testing
