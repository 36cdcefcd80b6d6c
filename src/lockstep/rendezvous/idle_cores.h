// The cores on which no rank of a host computes: threads that move data may use them.
#pragma once

#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/rendezvous/process_identity.h"

namespace lockstep {

/// One rank's part of the cores that no thread needs, if `sharers` ranks use these `cores` with
/// `threads` each. 0 if the threads are not known, which is 0 threads.
[[nodiscard]] int idle_cores(int cores, int sharers, int threads) noexcept;

/// That of this process, one of the `ranks` of its host. OMP_NUM_THREADS has the threads of each. A
/// rank whose processors are not known counts as one that uses the same cores.
[[nodiscard]] int idle_cores(const std::vector<ProcessIdentity>& ranks,
                             const Environment& environment);

/// The ranks that may use a processor that this process may use.
[[nodiscard]] int num_sharers(const std::vector<ProcessIdentity>& ranks);

}  // namespace lockstep
