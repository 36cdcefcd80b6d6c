// `lockstep run [options] program [arguments]`
#include <chrono>
#include <optional>

#include "cli/report/environment_record.h"
#include "cli/report/live_report.h"
#include "cli/run/options.h"
#include "cli/run/ranks.h"
#include "cli/sibling.h"
#include "cli/verb.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/launch/exit_code.h"
#include "lockstep/launch/job.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {
namespace {

// A short job gets only the page of its end.
constexpr std::chrono::seconds kFirstPage{1};

}  // namespace

int run_run(const std::vector<std::string>& arguments, Streams streams) {
  try {
    const auto options = parse_run_options(arguments);
    if (options.help) {
      streams.out << run_help();
      return kSuccess;
    }
    auto environment = Environment::of_process();
    if (options.allow_shared_gpu) environment.set("LOCKSTEP_ALLOW_SHARED_GPU", "1");
    const auto machine = describe_machine(environment);
    const int num_ranks = num_ranks_on(machine, options);
    EnvironmentFacts facts{.command = {typed_command(environment), "run"}, .ranks = num_ranks};
    facts.command.insert(facts.command.end(), arguments.begin(), arguments.end());
    std::optional<LiveReport> live;
    const auto opened = [&](const std::string& folder) {
      write_whole(folder + "/environment.json", environment_json(facts, machine, environment));
      live.emplace(folder, kFirstPage);
    };
    return run_job({.command = options.command,
                    .num_ranks = num_ranks,
                    .num_nodes = options.nodes.num_nodes,
                    .node = options.nodes.node_rank.value_or(0),
                    .rendezvous = options.nodes.rendezvous,
                    .network = options.nodes.network,
                    .pin = options.pin,
                    .show_ranks = options.show_ranks,
                    .color = options.color,
                    .grace = options.grace,
                    .timeout = options.nodes.timeout,
                    .max_restarts = options.max_restarts,
                    .run_dir = options.run_dir,
                    .secret_file = options.nodes.secret_file,
                    .opened = opened,
                    .metrics_port = options.metrics_port},
                   environment);
  } catch (const Error& error) {
    return report("run", error, streams.error,
                  launcher_exit_code({.cause = RunCause::environment}));
  }
}

}  // namespace lockstep::cli
