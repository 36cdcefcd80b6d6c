// The transport of ranks whose program uses MPI. It needs no MPI header: the world brings its
// communicator (init.h).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "lockstep/fabric/exchange_plan.h"
#include "lockstep/fabric/transport.h"

namespace lockstep {

struct MpiOptions {
  // The largest input that travels with its call, at most 16 KiB; equal on all ranks.
  std::size_t inline_bytes = 16U << 10;
  // If set, connects the ranks of each host: large data then cross the network once per host, and
  // move through the memory of this transport inside a host.
  Connect within_host = {};
  // With within_host, the shared memory per rank through which data pass that are not in registered
  // memory: this much for inputs, and for results; equal on all ranks.
  std::size_t stage_bytes = 2U << 20;
  // How the group reduces.
  ExchangeOptions exchange = {};
  // For tests: the host of a global rank, instead of that of the world.
  std::function<int(int global_rank)> host_of = {};
};

/// Connects ranks on any hosts by the communicator with which init(MPI_Comm) created their world.
/// The transport throws UsageError if the world has none, with instructions.
[[nodiscard]] Connect connect_by_mpi(const MpiOptions& options = {});

/// The processor time of the thread that moves the bytes of `network`, that of a world which
/// init(MPI_Comm) has created (GroupRegistry::given_network), while no caller does. 0 for null, and
/// without such a thread.
[[nodiscard]] double mpi_thread_seconds(const std::shared_ptr<void>& network);

}  // namespace lockstep
