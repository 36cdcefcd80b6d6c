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
    "lockstep version: print version, features of this build, and this machine\n"
    "\n"
    "  --json     print one JSON object, without the facts about the machine\n"
    "\n"
    "Examples\n"
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
    // Without a JSON library, which would triple the compile time of this file: the values are
    // names and versions, and need no escapes.
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
      "  backend   {} for ranks on one host\n",
      kVersion, kBuildTorch, kBuildMachine, kBuildCompiler, kBuildType, with(kBuildCuda),
      with(kBuildNccl), with(kBuildMpi), to_string(on_one_host.kind));
  streams.out << "this machine\n";
  for (const auto& line :
       machine_lines(describe_machine(Environment::of_process(), GpuDetail::nvml))) {
    streams.out << "  " << line << '\n';
  }
  return kSuccess;
}

}  // namespace lockstep::cli
