// `lockstep version [--json]`
#include "lockstep/base/version.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "build_facts.h"
#include "cli/verb.h"

namespace lockstep::cli {

int run_version(const std::vector<std::string>& arguments, Streams streams) {
  CLI::App app("Prints the version and what this build can use.", "lockstep version");
  bool as_json = false;
  app.add_flag("--json", as_json, "one JSON object instead of lines");
  try {
    app.parse(
        std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 wants it reversed
  } catch (const CLI::ParseError& error) {
    return app.exit(error, streams.out, streams.error) == 0 ? kSuccess : kUsage;
  }
  if (as_json) {
    const nlohmann::ordered_json facts{{"lockstep", kVersion},     {"torch", kBuildTorch},
                                       {"machine", kBuildMachine}, {"compiler", kBuildCompiler},
                                       {"build", kBuildType},      {"cuda", kBuildCuda},
                                       {"nccl", kBuildNccl},       {"mpi", kBuildMpi}};
    streams.out << facts.dump() << '\n';
    return kSuccess;
  }
  const auto with = [](bool on) { return on ? "yes" : "no"; };
  streams.out << fmt::format(
      "lockstep {}\n"
      "  LibTorch  {}\n"
      "  machine   {}\n"
      "  compiler  {}, {}\n"
      "  CUDA      {}\n"
      "  NCCL      {}\n"
      "  MPI       {}\n",
      kVersion, kBuildTorch, kBuildMachine, kBuildCompiler, kBuildType, with(kBuildCuda),
      with(kBuildNccl), with(kBuildMpi));
  return kSuccess;
}

}  // namespace lockstep::cli
