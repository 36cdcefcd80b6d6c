// The environment of one worker: that of the user, and the variables that torchrun sets, so that
// programs written for torchrun find their rank; and, unless the user has set them, the variables
// that make allocators keep the memory that a training step frees. The program chooses its device,
// usually by LOCAL_RANK.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"

namespace lockstep {

/// The rank of a worker, and its node.
struct WorkerIdentity {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int num_nodes = 1;
};

struct WorkerVariables {
  WorkerIdentity identity = {};
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = 0;
  std::string run_id = {};
  int restarts = 0;
  int max_restarts = 0;
  int threads = 1;  // OMP_NUM_THREADS, unless the user set it
  std::vector<std::pair<std::string, std::string>> extra = {};  // LOCKSTEP_RUN_DIR and such
};

/// `user` with the worker's variables set over it. Throws UsageError for an invalid identity.
[[nodiscard]] Environment worker_environment(const Environment& user,
                                             const WorkerVariables& variables);

}  // namespace lockstep
