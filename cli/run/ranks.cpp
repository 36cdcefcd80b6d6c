#include "cli/run/ranks.h"

#include "lockstep/base/error.h"

namespace lockstep::cli {

int num_ranks_on(const Machine& machine, const RunCommandOptions& options) {
  const int gpus = machine.num_gpus;
  switch (options.ranks) {
    case Ranks::per_gpu:
      if (gpus == 0) {
        throw UsageError("-n gpu, but no GPU is visible here: use -n auto for one rank per core");
      }
      return gpus;
    case Ranks::automatic:
      return gpus > 0 ? gpus : machine.cpu.num_cores();
    case Ranks::per_core:
      return machine.cpu.num_cores();
    case Ranks::count:
      break;
  }
  return options.num_ranks;
}

}  // namespace lockstep::cli
