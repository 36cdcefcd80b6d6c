#include "cli/bench/comm/comm.h"

#include <csignal>

#include "build_facts.h"
#include "cli/bench/comm/jobs.h"
#include "cli/bench/comm/steps.h"
#include "cli/scratch_folder.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/exit_code.h"
#include "lockstep/machine/core_plan.h"
#include "lockstep/rendezvous/launcher_environment.h"

namespace lockstep::cli {
namespace {

// The backends take turns, so that a change of load or clock frequency affects all of them equally.
int measure_and_report(const BenchCommOptions& options, const Environment& environment,
                       Streams streams) {
  CommReport report{.machine = describe_machine(environment),
                    .load = load_average(),
                    .rounds = rounds_of(options),
                    .build = kBuildType};
  const auto& machine = report.machine;
  const int ranks = options.num_ranks > 0 ? options.num_ranks : machine.cpu.num_cores();
  report.request = plan_request(options, ranks, machine.last_level_cache());
  for (const auto& assignment : plan_cores(machine.cpu, ranks)) {
    report.request.processors.push_back(assignment.processors);
  }
  auto& host = report.hosts.emplace_back(CommHost{.name = host_name()});
  for (int rank = 0; rank < ranks; ++rank) host.ranks.push_back(rank);
  const auto backends =
      find_backends(options, report.request.ranks, report.machine.cpu.num_cores(), environment);
  streams.out << header_text(report) << std::flush;
  ScratchFolder folder(environment);
  std::vector<std::vector<CommAnswer>> answers(backends.size());
  for (int round = 0; round < report.rounds; ++round) {
    for (std::size_t backend = 0; backend < backends.size(); ++backend) {
      auto outcome =
          run_backend(backends[backend], report.request, folder.path(), round, environment);
      if (const int* code = std::get_if<int>(&outcome)) {
        const bool interrupted = *code == 128 + SIGINT || *code == 128 + SIGTERM;
        if (!interrupted) folder.keep();
        return *code;
      }
      answers[backend].push_back(std::get<CommAnswer>(std::move(outcome)));
    }
  }
  finish_report(report, answers, options, streams.out);
  return kSuccess;
}

}  // namespace

int run_bench_comm(const std::vector<std::string>& arguments, Streams streams) {
  try {
    const auto options = parse_bench_comm_options(arguments);
    if (options.help) {
      streams.out << bench_comm_help();
      return kSuccess;
    }
    const auto environment = Environment::of_process();
    if (find_placement(environment).source != PlacementSource::none) {
      return run_bench_comm_in_job(options, environment, streams.out);
    }
    return measure_and_report(options, environment, streams);
  } catch (const Error& error) {
    return report("bench comm", error, streams.error,
                  launcher_exit_code({.cause = RunCause::environment}));
  }
}

}  // namespace lockstep::cli
