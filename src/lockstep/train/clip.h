// Gradient clipping by norm over flat buffers: one pass computes the norm, one pass scales.
//
// On a GPU nothing here waits for the device: norm and factor stay there, and the norm that is
// returned waits when it is read.
//
// Ranks need no communication: averaged gradients are bit-identical on all ranks, and so are their
// norm and the clipped gradients. With shards (DdpOptions::shard) both functions are collective:
// every rank calls them, and one small call shares the sums of squares. With loss scaling, call
// unscale, clip, step in this order. Squares are added in the order of flat/norm_grid.h, which
// depends on the model alone.
#pragma once

#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/pending.h"

namespace lockstep {

struct ClipOptions {
  bool error_if_non_finite = false;  // throw if the norm is non-finite; on a GPU this waits for it
};

/// The Euclidean norm of all gradients together, summed in double. Parameters without a gradient do
/// not count. Throws UsageError with the names of parameters that left registered memory.
[[nodiscard]] Pending<double> grad_norm(FlatParameters& flat);

/// Scales all gradients so that their norm is at most `max_norm`, as
/// torch.nn.utils.clip_grad_norm_: by max_norm / (norm + 1e-6) if that is below 1; otherwise
/// gradients do not change.
/// Returns the norm before scaling.
/// Throws UsageError for a negative max_norm, and for a non-finite norm with error_if_non_finite;
/// gradients do not change then. Without that option they become NaN, as in PyTorch.
Pending<double> clip_grad_norm(FlatParameters& flat, double max_norm,
                               const ClipOptions& options = {});

}  // namespace lockstep
