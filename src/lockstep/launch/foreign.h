// The rendezvous of ranks that another launcher started: torchrun, srun, mpirun, Kubernetes. Rank 0
// runs the store's server; the cases differ in how the other ranks find it and get the secret.
//
// On one host: through an abstract Unix socket whose name follows from the launcher's variables,
// equal on all ranks. Both ends check through the kernel that the other belongs to the same user,
// and rank 0 sends a new secret. No configuration is needed. On several hosts: by TCP at the
// launcher's master (torchrun's own store uses MASTER_PORT, so the port after it; mpirun gives no
// address, so LOCKSTEP_RENDEZVOUS=HOST:PORT), with the secret from a file that all nodes share.
#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"
#include "lockstep/rendezvous/launcher_environment.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// Meets the other ranks of the placement's job.
/// Collective: every rank of the job calls this. Returns when all have met.
/// Throws UsageError when ranks on several hosts have no address to meet at, PeerError when a rank
/// does not arrive by the deadline.
[[nodiscard]] World meet_under_foreign_launcher(const Placement& placement,
                                                const Environment& environment, Deadline deadline);

}  // namespace lockstep
