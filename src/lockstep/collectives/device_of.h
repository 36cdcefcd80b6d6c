// Which device a rank trains on: its local rank among the GPUs that CUDA_VISIBLE_DEVICES leaves
// visible. lockstep's launcher does not set that variable.
//
//   const auto world = lockstep::init();
//   const auto device = lockstep::device_of(world);  // cuda:1; cpu where no rank sees a GPU
//   net->to(device);
//
// A launcher may show each rank one GPU of its own (srun --gpus-per-task=1); the ranks compare the
// identities of their GPUs, so both ways work and a shared GPU is found in both.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

namespace lockstep {

class World;

struct DeviceOptions {
  // Several ranks may use one GPU. Also allowed by LOCKSTEP_ALLOW_SHARED_GPU=1, which
  // `lockstep run --allow-shared-gpu` sets.
  bool share = false;
};

/// The device of this rank, and makes it the calling thread's current one.
/// Collective: every rank of the world calls this. Returns when all have. Throws UsageError on all
/// ranks, naming the rank and the fix, if only some ranks see a GPU, if CUDA_VISIBLE_DEVICES names
/// none, and if two ranks would use the same GPU without options.share.
[[nodiscard]] at::Device device_of(const World& world, const DeviceOptions& options = {});

/// What a rank knows of its GPUs.
struct VisibleGpus {
  int host = 0;
  int local_rank = 0;
  std::vector<std::string> identities = {};  // of each GPU, by CUDA's index; comparable on a host
  bool may_share = false;
  std::string trouble = {};  // why a GPU that should be visible is not; usually empty

  friend bool operator==(const VisibleGpus&, const VisibleGpus&) = default;
};

/// CUDA's index of the GPU of each rank; empty if no rank sees one. `ranks` is in the order of
/// ranks. Pure. Throws UsageError as device_of does.
[[nodiscard]] std::vector<int> assign_gpus(std::span<const VisibleGpus> ranks);

}  // namespace lockstep
