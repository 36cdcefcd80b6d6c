// The twin of reduce.h for device memory (CUDA): the same tree and the same functions per element,
// so that results are bit-identical.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/kernels/device_passes.h"
#include "lockstep/kernels/leaf_tree.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {

/// The largest number of sources and of destinations: the ranks of one host.
constexpr std::size_t kMaxDeviceSources = 64;

/// As reduce(); enqueues the work on `stream` and returns. All memory is device memory, of this
/// device or mapped from another process. Throws UsageError for more than kMaxDeviceSources sources
/// or destinations and where lockstep was built without CUDA, SystemError when CUDA refuses the
/// launch.
void launch_reduce(const Reduction& reduction, const TreePlan& plan,
                   std::span<const std::byte* const> sources,
                   std::span<std::byte* const> destinations, std::size_t count,
                   DeviceStream stream);

}  // namespace lockstep
