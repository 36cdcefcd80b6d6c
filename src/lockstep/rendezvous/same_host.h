// Determines which ranks run on one host, so that they can share memory. Host names do not suffice:
// every container of a machine has its own name, and several machines can have the same name. Two
// steps do:
//   1. host_identity (machine/host_identity.h) names the running kernel and the namespaces of this
//      process. Ranks with different identities are on different hosts.
//   2. prove_same_host makes ranks with equal identities share a page of memory, in which each
//      writes a nonce that the others check. A rank that fails is on another host.
#pragma once

#include <span>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep {

/// Returns the ranks of `supposed` that share memory with its first rank: that rank, and all that
/// have proven it, in ascending order; the same result on each rank. `supposed` is in ascending
/// order and contains this Store's rank.
/// Collective: every rank of `supposed` calls this, once per Store.
/// Throws PeerError when one of them is lost or times out, SystemError when the server is lost. A
/// proof that fails is not an error.
[[nodiscard]] std::vector<int> prove_same_host(Store& store, std::span<const int> supposed,
                                               Deadline deadline);

}  // namespace lockstep
