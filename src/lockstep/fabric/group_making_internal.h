#pragma once

#include "lockstep/fabric/data_plane.h"

namespace lockstep {

/// Watches for a moment longer: a process that closes its connections because it ends counts as
/// gone only a moment later.
void look_again(const Watch& watch);

}  // namespace lockstep
