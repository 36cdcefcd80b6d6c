// `lockstep run [options] program [arguments]`
#include <fmt/format.h>

#include "cli/run/options.h"
#include "cli/verb.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/exit_code.h"
#include "lockstep/launch/job.h"
#include "lockstep/machine/core_plan.h"
#include "lockstep/machine/gpus.h"

namespace lockstep::cli {
namespace {

// A program that uses GPUs takes LOCAL_RANK's, so more ranks than GPUs would share some: only when
// asked for.
int ranks_here(const RunOptions& options, const Environment& environment) {
  const int gpus = num_gpus(environment);
  switch (options.ranks) {
    case Ranks::per_gpu:
      if (gpus == 0)
        throw UsageError("-n gpu, but no GPU is visible here: use -n auto for one rank a core");
      return gpus;
    case Ranks::automatic:
      return gpus > 0 ? gpus : read_cpu_topology(allowed_processors()).num_cores();
    case Ranks::per_core:
      return read_cpu_topology(allowed_processors()).num_cores();
    case Ranks::count:
      break;
  }
  if (gpus > 0 && options.num_ranks > gpus && !options.allow_shared_gpu) {
    throw UsageError(
        fmt::format("-n {} on {} GPU{}: ranks would share one. Use -n gpu, or --allow-shared-gpu, "
                    "or hide the GPUs with "
                    "CUDA_VISIBLE_DEVICES= to train on the CPU",
                    options.num_ranks, gpus, gpus == 1 ? "" : "s"));
  }
  return options.num_ranks;
}

}  // namespace

int run_run(const std::vector<std::string>& arguments, Streams streams) {
  try {
    const auto options = parse_run_options(arguments);
    if (options.help) {
      streams.out << run_help();
      return kSuccess;
    }
    const auto environment = Environment::of_process();
    return run_job({.command = options.command,
                    .num_ranks = ranks_here(options, environment),
                    .num_nodes = options.num_nodes,
                    .node = options.node_rank.value_or(0),
                    .rendezvous = options.rendezvous,
                    .pin = options.pin,
                    .show_ranks = options.show_ranks,
                    .color = options.color,
                    .grace = options.grace,
                    .timeout = options.timeout,
                    .max_restarts = options.max_restarts,
                    .run_dir = options.run_dir,
                    .secret_file = options.secret_file},
                   environment);
  } catch (const Error& error) {
    return report("run", error, streams.error,
                  launcher_exit_code({.cause = RunCause::environment}));
  }
}

}  // namespace lockstep::cli
