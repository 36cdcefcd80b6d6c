// A checkpoint has one copy of the tensors that Tracked::named_tensors() returns. If they differ
// between the ranks, as the state of an optimizer over each rank's shards does, the checkpoint
// would silently have those of rank 0.
#pragma once

#include "lockstep/checkpoint/resuming_internal.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// Throws UsageError, on all ranks, if tensors of a part that count as equal differ between ranks:
/// in their number, a name, type or shape, or in the first 4 KiB of one. Collective.
void expect_equal_parts(const Parts& parts, const ProcessGroup& group);

}  // namespace lockstep
