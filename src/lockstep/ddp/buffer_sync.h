// Copies buffers, such as running statistics, from one rank to all, in one call.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/collectives/process_group.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Copies the current buffers of `module`, without those of `except`, from rank `root` of the group
/// to all ranks, in place. Version counters do not change, so that a graph that has saved a buffer
/// can still run backward. Collective: every rank calls this. Returns when the buffers are copied.
/// Throws PeerError when a rank is lost, or when the ranks' buffers differ in number or size.
void broadcast_buffers(torch::nn::Module& module, const ProcessGroup& group, int root,
                       const std::vector<at::Tensor>& except = {});

}  // namespace lockstep
