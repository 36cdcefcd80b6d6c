// The bucket size for this model on this host, measured.
#pragma once

#include <cstddef>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// The smallest size of which `total_bytes` are reduced nearly as fast as in one piece: smaller
/// ones begin earlier. Takes some milliseconds. Collective; every rank gets rank 0's answer.
[[nodiscard]] std::size_t measure_bucket_bytes(const ProcessGroup& group, std::size_t total_bytes);

}  // namespace lockstep
