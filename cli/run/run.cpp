// `lockstep run [options] program [arguments]`
#include "cli/run/options.h"
#include "cli/run/ranks.h"
#include "cli/verb.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/exit_code.h"
#include "lockstep/launch/job.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {
int run_run(const std::vector<std::string>& arguments, Streams streams) {
  try {
    const auto options = parse_run_options(arguments);
    if (options.help) {
      streams.out << run_help();
      return kSuccess;
    }
    const auto environment = Environment::of_process();
    return run_job({.command = options.command,
                    .num_ranks = num_ranks_on(describe_machine(environment), options),
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
