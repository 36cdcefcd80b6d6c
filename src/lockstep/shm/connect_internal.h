#pragma once

#include <memory>

#include "lockstep/base/deadline.h"
#include "lockstep/shm/connect.h"
#include "lockstep/shm/memory_exchange_internal.h"

namespace lockstep {

/// Creates planes over the memory of `exchange`. Collective.
[[nodiscard]] Planes planes_over(std::unique_ptr<MemoryExchange> exchange,
                                 const Membership& membership, const ShmOptions& options,
                                 Deadline deadline);

}  // namespace lockstep
