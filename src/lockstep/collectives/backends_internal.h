// How a ProcessGroup connects its ranks.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/fabric/backend_choice.h"
#include "lockstep/fabric/group.h"
#include "lockstep/fabric/transport.h"

namespace lockstep {

enum class Sums : std::uint8_t;  // collectives/process_group.h

/// Connects the ranks of a group, and of those that split() creates, for CPU memory. `is_fast`:
/// between hosts, sums of floating point may use the ring.
[[nodiscard]] Connect connect_ranks(const BackendOptions& backend, bool is_fast);

/// As make_group() of backends.h, with GPU memory. In a library with LibTorch: a program that uses
/// none does not load the CUDA runtime.
[[nodiscard]] std::shared_ptr<Group> make_group_with_devices(const World& world,
                                                             const GroupOptions& options,
                                                             const BackendOptions& backend,
                                                             Sums sums);

}  // namespace lockstep
