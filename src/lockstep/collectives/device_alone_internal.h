// Collectives of a group of one rank on CUDA tensors, unless a backend was requested for them.
// Nothing has to be moved to another rank: the input is copied to the output, or divided by the
// weight, on the tensor's device and in the order of its current stream.
#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/fabric/call.h"
#include "lockstep/fabric/group.h"

namespace lockstep {

/// Whether the group moves no data on GPUs.
[[nodiscard]] inline bool runs_alone(const Group& group) {
  return group.size() == 1 && !group.has_device_plane();
}

/// Enqueues the work of `call` on the current stream of `output`'s device and returns. `input` and
/// `output` have the same number of elements and may be the same tensor.
void run_alone_on_device(const Call& call, const at::Tensor& output, const at::Tensor& input);

/// Returns when the host can read results on `device`: waits for its current stream.
void synchronize_stream(at::Device device);

}  // namespace lockstep
