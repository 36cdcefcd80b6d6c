// The transport of ranks whose program uses MPI. It needs no MPI header: the world brings its
// communicator (init.h).
#pragma once

#include <cstddef>

#include "lockstep/fabric/exchange_plan.h"
#include "lockstep/fabric/transport.h"

namespace lockstep {

struct MpiOptions {
  // The largest input that travels with its call, at most 16 KiB; equal on all ranks.
  std::size_t inline_bytes = 16U << 10;
  // How the group reduces.
  ExchangeOptions exchange = {};
};

/// Connects ranks on any hosts by the communicator with which init(MPI_Comm) created their world.
/// The transport throws UsageError if the world has none, with instructions.
[[nodiscard]] Connect connect_by_mpi(const MpiOptions& options = {});

}  // namespace lockstep
