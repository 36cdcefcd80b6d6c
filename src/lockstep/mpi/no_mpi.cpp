#include "lockstep/mpi/availability.h"

namespace lockstep {

std::string how_to_get_mpi() {
  return "this lockstep was built without MPI: install an MPI (apt-get install libopenmpi-dev "
         "openmpi-bin), build lockstep with -DLOCKSTEP_MPI=ON, and create the world with "
         "init(MPI_Comm) (docs/launching.md)";
}

}  // namespace lockstep
