// Whether lockstep was built with MPI. Two files define this: has_mpi.cpp and no_mpi.cpp.
#pragma once

#include <string>

namespace lockstep {

/// What to do so that a world has an MPI communicator.
[[nodiscard]] std::string how_to_get_mpi();

}  // namespace lockstep
