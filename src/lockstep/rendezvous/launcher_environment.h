// Reads from the variables of a launcher which rank of the job this process is. Pure: takes an
// Environment, returns a Placement.
//
// Launchers are tried in this order, and the first that is found counts:
//   1. lockstep run    LOCKSTEP_STORE, with torchrun's variables. It always wins: it sets all of
//                      them for its ranks, and replaces those of an outer launcher.
//   2. torchrun        TORCHELASTIC_RUN_ID: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
//                      GROUP_RANK, GROUP_WORLD_SIZE
//   3. SLURM           SLURM_PROCID inside a step of srun. Not counted as a step: no
//                      SLURM_STEP_ID, the steps batch, extern and interactive, and jobs named bash
//                      or interactive.
//   4. Open MPI        OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE (mpirun, PMIx)
//   5. MPICH           PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS (Hydra, Intel MPI)
//   6. plain           RANK, WORLD_SIZE (Kubernetes with Kubeflow, or by hand); for an indexed Job,
//                      JOB_COMPLETION_INDEX replaces RANK
// Variables of several launchers are accepted in two cases:
//   - they agree: the same rank of the same size (srun --mpi=pmix, RANK=$SLURM_PROCID);
//   - the outer launcher started one process per node, which started the ranks: torchrun under srun
//     or mpirun, mpirun's daemons under srun. Then the inner one counts. If it gives a number of
//     nodes, this must be the outer one's number of processes.
// Everything else is an error that names both launchers and their values, as are invalid numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/environment.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/rendezvous/network_settings.h"

namespace lockstep {

enum class PlacementSource { lockstep, torchrun, slurm, open_mpi, mpich, plain, none };

/// "lockstep run", "torchrun", "srun (SLURM)", "mpirun (Open MPI)", "mpiexec (MPICH)",
/// "RANK and WORLD_SIZE", "no launcher".
[[nodiscard]] std::string_view to_string(PlacementSource source) noexcept;

struct Placement {
  int rank = 0;
  int size = 1;
  // nullopt where the launcher does not give it; meet() (world.h) determines it then.
  std::optional<int> local_rank;  // among the ranks of its node
  std::optional<int> local_size;
  std::optional<int> node_rank;
  std::optional<int> num_nodes;
  // MASTER_ADDR and MASTER_PORT, or their replacement: under SLURM the first node of the step and
  // the port 15000 + (job + step) mod 10000. Under torchrun, torchrun's own store listens there.
  std::optional<Endpoint> master;
  PlacementSource source = PlacementSource::none;
  // A name of the job: equal on all its ranks and, as far as the launcher allows, different from
  // other jobs of this user on this machine; at most 64 bytes (kMaxJobBytes). MPICH, and plain
  // variables without a master, do not distinguish jobs: all of one kind have the same name.
  std::string job;
  std::uint64_t round = 0;             // the number of restarts by the launcher
  std::optional<std::string> run_dir;  // LOCKSTEP_RUN_DIR
  NetworkSettings network;
};

/// Finds the launcher that placed this process; source `none` if there is none.
/// Throws UsageError for a variable that is not a number, a missing variable, numbers that
/// contradict each other, or two launchers that contradict each other.
[[nodiscard]] Placement find_placement(const Environment& environment);

}  // namespace lockstep
