#include "lockstep/mpi/availability.h"

namespace lockstep {

std::string how_to_get_mpi() {
  return "create the world with init(MPI_Comm) of lockstep/mpi/init.h, and link "
         "lockstep::mpi_world (docs/launching.md)";
}

}  // namespace lockstep
