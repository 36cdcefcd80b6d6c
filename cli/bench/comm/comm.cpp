#include "cli/bench/comm/comm.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: getloadavg is not in <cstdlib>

#include <csignal>
#include <cstdlib>

#include "build_facts.h"
#include "cli/bench/comm/buffer_plan.h"
#include "cli/bench/comm/jobs.h"
#include "cli/bench/comm/options.h"
#include "cli/bench/comm/report.h"
#include "cli/scratch_folder.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/launch/exit_code.h"
#include "lockstep/machine/core_plan.h"

namespace lockstep::cli {
namespace {

CommRequest request_of(const BenchCommOptions& options, const Machine& machine) {
  CommRequest request{.ranks = options.num_ranks > 0 ? options.num_ranks : machine.cpu.num_cores(),
                      .seconds = std::chrono::duration<double>(options.time).count(),
                      .iterations = options.iterations};
  for (const auto op : options.ops) {
    for (const auto dtype : options.dtypes) {
      for (const auto memory : options.memory) {
        for (const auto bytes : options.sizes) {
          request.cases.push_back(whole_case(
              {.op = op, .dtype = dtype, .bytes = bytes, .memory = memory}, request.ranks));
        }
      }
    }
  }
  plan_memory(request, machine.last_level_cache());
  const auto assignments = plan_cores(machine.cpu, request.ranks);
  for (const auto& assignment : assignments) request.processors.push_back(assignment.processors);
  return request;
}

std::optional<double> load_average() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? std::optional(load) : std::nullopt;
}

void write_file(const std::string& path, const std::string& text, std::ostream& out) {
  if (path.empty()) return;
  const auto file = FileDescriptor::open(path, O_WRONLY | O_CREAT | O_TRUNC);
  write_all(file.number(), std::as_bytes(std::span(text)), path);
  out << "written: " << path << '\n';
}

// The backends take turns, so that a change of load or clock frequency affects all of them equally.
int measure_and_report(const BenchCommOptions& options, const Environment& environment,
                       Streams streams) {
  CommReport report{
      .machine = describe_machine(environment), .load = load_average(), .build = kBuildType};
  report.request = request_of(options, report.machine);
  report.rounds = options.rounds > 0 ? options.rounds : options.compare.empty() ? 1 : 3;
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
  for (std::size_t backend = 0; backend < backends.size(); ++backend) {
    report.names.push_back(backends[backend].name);
    report.abouts.push_back(answers[backend].front().about);
  }
  report.rows = rows_of(report.request, answers);
  streams.out << table_text(report);
  write_file(options.json, json_text(report), streams.out);
  write_file(options.svg, svg_text(report), streams.out);
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
    return measure_and_report(options, Environment::of_process(), streams);
  } catch (const Error& error) {
    return report("bench comm", error, streams.error,
                  launcher_exit_code({.cause = RunCause::environment}));
  }
}

}  // namespace lockstep::cli
