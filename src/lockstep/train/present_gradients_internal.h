// What every statement over flat gradients begins with.
#pragma once

#include <vector>

#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

/// The ranges of parameters that have a gradient, wherever it came from: one that was assigned by
/// hand is moved into its slot first. Throws UsageError naming parameters that left registered memory.
[[nodiscard]] std::vector<FlatRange> present_gradients(FlatParameters& flat);

/// Elements [begin, end) of the range's gradients.
[[nodiscard]] at::Tensor gradients_of(const FlatParameters& flat, const FlatRange& range);

}  // namespace lockstep
