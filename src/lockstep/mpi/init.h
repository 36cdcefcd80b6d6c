// Worlds of MPI programs. For programs that use MPI only: it includes mpi.h, and needs the library
// lockstep::mpi_world. The program calls MPI_Init_thread first and MPI_Finalize last.
#pragma once

#include <mpi.h>

#include <chrono>

#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// Creates the world of the ranks of `communicator`, with the same ranks; replaces init() of
/// launch/init.h. The communicator is duplicated: the program may use and free its own.
///
/// With MPI_THREAD_SERIALIZED or more, a thread moves data while the program computes; with
/// SERIALIZED, the program makes no MPI calls of its own while the world exists. With less, data
/// move only inside calls of lockstep, which are then made by the thread that MPI allows; a line on
/// standard error says so. Destroy all copies of the world before MPI_Finalize: the groups are
/// unusable afterwards. The number of ranks is fixed: MPI has no restart of a single rank.
/// Collective over `communicator`. Returns when all ranks have met.
/// Throws UsageError if MPI is not initialised or the communicator is none of one group of ranks,
/// PeerError when a rank is lost or does not arrive within `timeout`.
[[nodiscard]] World init(MPI_Comm communicator,
                         std::chrono::seconds timeout = std::chrono::seconds(300));

}  // namespace lockstep
