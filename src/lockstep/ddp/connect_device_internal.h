// The first call of a group on a GPU.
#pragma once

#include <ATen/ATen.h>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// Makes the first call of a group on `device`. On a GPU it connects the backend, in which every
/// rank takes part: it must not be left to a call that a rank may leave out because its hook
/// throws, or that a rank without a batch replaces.
inline void connect_device(const ProcessGroup& group, at::Device device) {
  if (!device.is_cuda() || group.size() == 1) return;
  auto none = at::zeros({1}, at::device(device));
  group.all_reduce(none, ReduceOp::sum, {.name = "first call on this device"}).wait();
}

}  // namespace lockstep
