// lockstep-data: the part of `lockstep data` and `lockstep bench data` that needs LibTorch. The
// lockstep command executes it; users do not.
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/data/program/verbs.h"
#include "cli/error_report.h"

int main(int argc, char** argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb != "audit" && verb != "bench") {
    std::cerr
        << "lockstep-data is started by `lockstep data audit` and `lockstep bench data`: use those "
           "commands.\n";
    return 2;
  }
  const std::vector<std::string> arguments(argv + 2, argv + argc);
  const bool audit = verb == "audit";
  try {
    return audit ? lockstep::cli::run_audit(arguments) : lockstep::cli::run_bench(arguments);
  } catch (const lockstep::Error& error) {
    return lockstep::cli::report(audit ? "data audit" : "bench data", error, std::cerr);
  }
}
