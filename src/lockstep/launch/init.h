// The first line of a program that trains with lockstep: auto world = lockstep::init();
#pragma once

#include <chrono>

#include "lockstep/rendezvous/world.h"

namespace lockstep {

struct InitOptions {
  int ranks = 0;  // started alone: become this many; 0: LOCKSTEP_RANKS, else stay one
  std::chrono::seconds timeout{300};  // for all ranks to meet
};

/// Finds this process's place among the ranks of its job and meets them.
/// Started by `lockstep run`, torchrun, srun, mpirun or with Kubernetes' variables, it takes the
/// place they gave. Started alone it is a world of one; or, when asked for more ranks, it executes
/// the program again as that many local ranks, watches them as `lockstep run` does, and exits with
/// their code: nothing after init() runs in it. So call it first thing in main. Collective: every
/// rank of the job calls this once. Returns when all have met. Throws UsageError for a place that
/// cannot be, PeerError for ranks that did not come, SystemError when the launcher is gone.
[[nodiscard]] World init(const InitOptions& options = {});

}  // namespace lockstep
