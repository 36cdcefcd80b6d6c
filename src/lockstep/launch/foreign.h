// How ranks meet that someone else's launcher started: torchrun, srun, mpirun, Kubernetes. Rank 0
// serves the store; what differs is how the others find it and come by the secret.
//
// On one host: through an abstract Unix socket whose name the launcher's variables give all ranks
// alike. Both ends check that the other is the same user, as the kernel vouches, and rank 0 passes
// a fresh secret. No set-up. On several: by TCP at the launcher's master (torchrun's own store
// holds MASTER_PORT, so the port after it; mpirun names none, so LOCKSTEP_RENDEZVOUS=HOST:PORT),
// with the secret from a file that all nodes share.
#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"
#include "lockstep/rendezvous/launcher_environment.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// Collective: every rank of the placement's job calls this. Returns when all have met.
/// Throws UsageError when ranks on several hosts have no place to meet, PeerError for ranks that do
/// not come.
[[nodiscard]] World meet_under_foreign_launcher(const Placement& placement,
                                                const Environment& environment, Deadline deadline);

}  // namespace lockstep
