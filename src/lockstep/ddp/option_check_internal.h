// Before a Ddp is made: do all ranks make the same one, and in which group?
#pragma once

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/ddp.h"

namespace lockstep {

/// Compares the options of all ranks of `group`, and returns the group in which the Ddp makes its
/// calls: `group`, or a new one of the same ranks where another Ddp lives that uses `group`. So the
/// calls of each Ddp have an order of their own, and several may be in one graph.
/// Collective. Throws PeerError that names the option, both values and the rank.
[[nodiscard]] ProcessGroup agree_on_group(const ProcessGroup& group, const DdpOptions& options);

}  // namespace lockstep
