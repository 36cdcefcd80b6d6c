// Checks before a Ddp is made: equal options on all ranks, and a group for its calls.
#pragma once

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/ddp.h"

namespace lockstep {

/// Compares the options of all ranks of `group`.
/// Returns the group in which the Ddp makes its calls: `group`, or a new one of the same ranks if a
/// living Ddp uses `group`. So the calls of each Ddp are ordered independently, and several may be
/// in one graph.
/// Collective: every rank calls this.
/// Throws PeerError that names the option, both values and the rank.
[[nodiscard]] ProcessGroup agree_on_group(const ProcessGroup& group, const DdpOptions& options);

/// Collective: every rank of `group` calls this in Ddp::set_hook().
/// Throws PeerError that names the rank whose hook has another name or form than that of rank 0.
void expect_same_hook(const ProcessGroup& group, const GradientHook& hook);

}  // namespace lockstep
