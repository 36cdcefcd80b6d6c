#include "cli/run/ranks.h"

#include <fmt/format.h>

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
  if (gpus > 0 && options.num_ranks > gpus && !options.allow_shared_gpu) {
    throw UsageError(
        fmt::format("-n {} on {} GPU{}: several ranks would share a GPU. Use -n gpu, or "
                    "--allow-shared-gpu, or hide the GPUs with CUDA_VISIBLE_DEVICES= to train on "
                    "the CPU",
                    options.num_ranks, gpus, gpus == 1 ? "" : "s"));
  }
  return options.num_ranks;
}

}  // namespace lockstep::cli
