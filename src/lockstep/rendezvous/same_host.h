// Which ranks run on one host, so that they can share memory. Names and counts do not tell: every
// container of a machine has its own name, and several machines can have the same. Two steps do:
//   1. host_identity (machine/host_identity.h) names the running kernel and the namespaces of this
//   process. Ranks whose
//      identities differ are on different hosts, and nothing more is tried.
//   2. prove_same_host makes those with equal identities share a page of memory, and write into it
//      what the others know to look for. Who cannot is on another host.
#pragma once

#include <span>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep {

/// Which ranks of `supposed` share memory with its first: that one, and all that have proven it, in
/// ascending order. `supposed` is in ascending order, has this Store's rank, and each rank is given
/// the same answer.
/// Collective among the supposed ranks, once for a Store.
/// Throws PeerError when one of them is lost or late, SystemError when the server is gone; that a
/// proof fails is no error.
[[nodiscard]] std::vector<int> prove_same_host(Store& store, std::span<const int> supposed,
                                               Deadline deadline);

}  // namespace lockstep
