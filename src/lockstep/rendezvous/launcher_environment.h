// Which place in the job a launcher gave this process, read from the variables it sets. Pure: an
// Environment in, a Placement out.
//
// Launchers are looked for in this order, and the first that is there counts:
//   1. lockstep run    LOCKSTEP_STORE, with torchrun's variables. It always wins: it sets all of
//                      them for its ranks, and replaces what an outer launcher had set.
//   2. torchrun        TORCHELASTIC_RUN_ID: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
//                      GROUP_RANK, GROUP_WORLD_SIZE
//   3. SLURM           SLURM_PROCID inside a step of srun. Not a step: no SLURM_STEP_ID, the steps
//                      batch, extern and interactive, and jobs named bash or interactive.
//   4. Open MPI        OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE (mpirun, PMIx)
//   5. MPICH           PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS (Hydra, Intel MPI)
//   6. plain           RANK, WORLD_SIZE (Kubernetes with Kubeflow, or by hand); an indexed Job's
//                      JOB_COMPLETION_INDEX stands in for RANK
// Several at once are fine in two cases:
//   - they agree: the same rank of the same size (srun --mpi=pmix, RANK=$SLURM_PROCID);
//   - the outer one started one process a node, which started the ranks: torchrun under srun or
//     mpirun, mpirun's daemons under srun. Then the inner one counts. Its number of nodes, where it
//     says one, must be the outer one's number of processes.
// Everything else is an error that names both and what they say, as are numbers that cannot be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/environment.h"
#include "lockstep/net/endpoint.h"

namespace lockstep {

enum class PlacementSource { lockstep, torchrun, slurm, open_mpi, mpich, plain, none };

/// "lockstep run", "torchrun", "srun (SLURM)", "mpirun (Open MPI)", "mpiexec (MPICH)",
/// "RANK and WORLD_SIZE", "no launcher".
[[nodiscard]] std::string_view to_string(PlacementSource source) noexcept;

struct Placement {
  int rank = 0;
  int size = 1;
  // Nothing where the launcher does not say; meet (world.h) finds out.
  std::optional<int> local_rank;  // among the ranks of its node
  std::optional<int> local_size;
  std::optional<int> node_rank;
  std::optional<int> num_nodes;
  // MASTER_ADDR and MASTER_PORT, or what stands for them: under SLURM the first node of the step
  // and the port 15000 + (job + step) mod 10000. Under torchrun its own store listens there.
  std::optional<Endpoint> master;
  PlacementSource source = PlacementSource::none;
  // What all ranks of the job, and hopefully no other job of this user here, have in common; at
  // most 64 bytes (kMaxJobBytes). MPICH and plain variables without a master tell jobs apart no
  // further than their kind.
  std::string job;
  std::uint64_t round = 0;             // how often the launcher has restarted the job
  std::optional<std::string> run_dir;  // LOCKSTEP_RUN_DIR
};

/// Throws UsageError: for a variable that is no number, one that is missing, numbers that
/// contradict each other, or two launchers that do.
[[nodiscard]] Placement find_placement(const Environment& environment);

}  // namespace lockstep
