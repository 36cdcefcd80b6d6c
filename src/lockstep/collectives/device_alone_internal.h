// Collectives of a group of one rank on CUDA tensors. Nothing has to be moved to another rank: the
// input is copied to the output, or divided by the weight, on the tensor's device and in the order
// of its current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/fabric/call.h"

namespace lockstep {

/// Enqueues the work of `call` on the current stream of `output`'s device and returns. `input` and
/// `output` have the same number of elements and may be the same tensor.
void run_alone_on_device(const Call& call, const at::Tensor& output, const at::Tensor& input);

/// Returns when the host can read results on `device`: waits for its current stream.
void synchronize_stream(at::Device device);

}  // namespace lockstep
