// Buffers (running statistics and the like) from one rank to all, in one call.
#pragma once

#include "lockstep/collectives/process_group.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Copies the buffers that `module` has now from rank `root` of the group to all. Values change in
/// place and version counters do not: a graph that saved a buffer can still go backward.
/// Collective. Throws PeerError; buffers that differ in size or number are differing calls.
void broadcast_buffers(torch::nn::Module& module, const ProcessGroup& group, int root);

}  // namespace lockstep
