// `lockstep version [--json]`
#include "lockstep/base/version.h"

#include <fmt/format.h>

#include "build_facts.h"
#include "cli/arguments.h"
#include "cli/verb.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/backend_choice.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep version: the version, what this build can use, and what this machine has\n"
    "\n"
    "  --json     one JSON object instead of lines\n"
    "\n"
    "Examples:\n"
    "  lockstep version\n"
    "  lockstep version --json\n";

}  // namespace

int run_version(const std::vector<std::string>& arguments, Streams streams) {
  bool help = false;
  bool as_json = false;
  Arguments declared("version", help);
  declared.flag("--json", as_json);
  try {
    declared.read(arguments);
  } catch (const UsageError& error) {
    return report("version", error, streams.error);
  }
  if (help) {
    streams.out << kHelp;
    return kSuccess;
  }
  const auto on_one_host = choose_backend({{0, 1}, {0, 0}, {"localhost", "localhost"}});
  if (as_json) {
    // By hand: the values are names and versions, with nothing to escape, and a JSON library would
    // triple the time that this file takes to compile.
    streams.out << fmt::format(
        R"({{"lockstep":"{}","torch":"{}","machine":"{}","compiler":"{}","build":"{}",)"
        R"("cuda":{},"nccl":{},"mpi":{},"backend":"{}"}})"
        "\n",
        kVersion, kBuildTorch, kBuildMachine, kBuildCompiler, kBuildType, kBuildCuda, kBuildNccl,
        kBuildMpi, to_string(on_one_host.kind));
    return kSuccess;
  }
  const auto with = [](bool on) { return on ? "yes" : "no"; };
  streams.out << fmt::format(
      "lockstep {}\n"
      "  LibTorch  {}\n"
      "  built for {}\n"
      "  compiler  {}, {}\n"
      "  CUDA      {}\n"
      "  NCCL      {}\n"
      "  MPI       {}\n"
      "  backend   {} for ranks of one host\n",
      kVersion, kBuildTorch, kBuildMachine, kBuildCompiler, kBuildType, with(kBuildCuda),
      with(kBuildNccl), with(kBuildMpi), to_string(on_one_host.kind));
  streams.out << "this machine\n";
  for (const auto& line : machine_lines(describe_machine(Environment::of_process()))) {
    streams.out << "  " << line << '\n';
  }
  return kSuccess;
}

}  // namespace lockstep::cli
