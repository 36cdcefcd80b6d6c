#pragma once

#include "lockstep/fabric/data_plane.h"

namespace lockstep {

/// Calls `watch` for 500 ms: a process that ends closes its connections shortly before the kernel
/// reports its end.
void watch_briefly(const Watch& watch);

}  // namespace lockstep
