// How many bytes one call of a group moves best.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// best_call_bytes() of rendezvous/call_size.h for the link between the hosts of `group`; nullopt
/// for ranks of one host. Not collective; equal on all ranks.
[[nodiscard]] std::optional<std::size_t> best_call_bytes(const ProcessGroup& group,
                                                         std::size_t total);

}  // namespace lockstep
