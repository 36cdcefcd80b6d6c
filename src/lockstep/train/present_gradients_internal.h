// Finds the gradients in flat buffers; every function over them begins with this.
#pragma once

#include <vector>

#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

/// The ranges of parameters that have a gradient. A gradient that the user assigned is moved into
/// its slot first. Throws UsageError with the names of parameters that left registered memory.
[[nodiscard]] std::vector<FlatRange> present_gradients(FlatParameters& flat);

/// The parts of them that this rank updates: all, without shards.
[[nodiscard]] std::vector<FlatRange> owned_gradients(FlatParameters& flat);

}  // namespace lockstep
