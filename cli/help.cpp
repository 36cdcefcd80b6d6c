// `lockstep help [verb]`
#include <fmt/format.h>

#include <algorithm>

#include "cli/verb.h"

namespace lockstep::cli {

int run_help(const std::vector<std::string>& arguments, Streams streams) {
  if (!arguments.empty()) {
    const auto verb = std::ranges::find(verbs(), arguments.front(), &Verb::name);
    if (verb == verbs().end()) return unknown_verb(arguments.front(), streams);
    if (verb->run != run_help) return verb->run({"--help"}, streams);
  }
  streams.out << "lockstep: data-parallel training for C++ on LibTorch\n"
                 "\n"
                 "  lockstep <verb> [arguments]\n"
                 "\n";
  for (const auto& verb : verbs()) {
    streams.out << fmt::format("  {:<10} {}\n", verb.name, verb.summary);
  }
  streams.out << "\n"
                 "  -h, --help     print this help; `lockstep help <verb>` for a verb\n"
                 "  -V, --version  print only the version\n"
                 "\n"
                 "Examples\n"
                 "  lockstep run -n 4 ./my_program --its options\n"
                 "  lockstep data inspect train.bin\n"
                 "  lockstep train gpt --data my.txt --run runs/mine --steps 1000\n";
  return kSuccess;
}

}  // namespace lockstep::cli
