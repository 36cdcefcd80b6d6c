// lockstep-ckpt: the part of `lockstep ckpt` that needs LibTorch. The lockstep command executes it;
// users do not.
#include <algorithm>
#include <array>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/ckpt/program/verbs.h"
#include "cli/error_report.h"

namespace {

using Verb = std::pair<std::string_view, int (*)(const std::vector<std::string>&)>;
constexpr std::array kVerbs{
    Verb{"inspect", lockstep::cli::run_inspect}, Verb{"verify", lockstep::cli::run_verify},
    Verb{"diff", lockstep::cli::run_diff},       Verb{"export", lockstep::cli::run_export},
    Verb{"import", lockstep::cli::run_import},
};

}  // namespace

int main(int argc, char** argv) {
  const auto verb = std::ranges::find(kVerbs, argc > 1 ? argv[1] : "", &Verb::first);
  if (verb == kVerbs.end()) {
    std::cerr << "lockstep-ckpt is started by `lockstep ckpt`: use that command.\n";
    return 2;
  }
  try {
    return verb->second(std::vector<std::string>(argv + 2, argv + argc));
  } catch (const lockstep::Error& error) {
    return lockstep::cli::report("ckpt " + std::string(verb->first), error, std::cerr);
  }
}
