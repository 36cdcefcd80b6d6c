// Measures the bucket size for a model on this host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// The smallest bucket size with which `total_bytes` are reduced nearly as fast as in the fastest
/// one, in memory of `device`: the reduction of smaller buckets begins earlier.
/// Collective: every rank calls this and gets rank 0's result. Takes some milliseconds.
[[nodiscard]] std::size_t measure_bucket_bytes(const ProcessGroup& group, std::size_t total_bytes,
                                               at::Device device);

}  // namespace lockstep
