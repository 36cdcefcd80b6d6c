// Bounds the length of the gradient, over flat memory: one pass reads, one pass scales.
//
// Ranks agree without a message: reduced gradients have the same bits on every rank, and so have
// their norm and what is left of them. Order with loss scaling: unscale, clip, step.
#pragma once

#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

struct ClipOptions {
  bool error_if_non_finite = false;  // throw instead of scaling by what is not finite
};

/// The Euclidean norm of all gradients together, summed in double. Parameters without a gradient
/// count nothing. Throws UsageError naming parameters that left registered memory.
[[nodiscard]] double grad_norm(FlatParameters& flat);

/// Scales all gradients so that their norm is at most `max_norm`, as torch.nn.utils.clip_grad_norm_
/// does: by max_norm / (norm + 1e-6) where that is below 1. Gradients that are short enough are not
/// touched. Returns the norm before.
/// Throws UsageError for a negative max_norm, and for a norm that is not finite if so asked: the
/// gradients are as they were then. Without it they become NaN, as in Python.
double clip_grad_norm(FlatParameters& flat, double max_norm, const ClipOptions& options = {});

}  // namespace lockstep
