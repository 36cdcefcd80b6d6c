// The first statement of a program that trains with lockstep: auto world = lockstep::init();
#pragma once

#include <chrono>

#include "lockstep/rendezvous/world.h"

namespace lockstep {

struct InitOptions {
  int ranks = 0;  // without a launcher: the number of ranks to start; 0: LOCKSTEP_RANKS, else 1
  std::chrono::seconds timeout{300};  // for all ranks to meet
};

/// Finds the rank of this process in its job and meets the other ranks.
/// Under `lockstep run`, torchrun, srun, mpirun or with the variables of Kubernetes, the launcher
/// gives the rank. Without a launcher the process is a world of one; or, if more ranks are
/// requested, it executes its program again as that many local ranks, watches them as `lockstep
/// run` does, and exits with their code: no code after init() runs in that process. So call it
/// first in main(). Collective: every rank of the job calls this once. Returns when all have met.
/// Throws UsageError for invalid or contradictory variables of a launcher, PeerError when a rank is
/// lost or does not arrive in time, SystemError when the launcher is lost.
[[nodiscard]] World init(const InitOptions& options = {});

}  // namespace lockstep
