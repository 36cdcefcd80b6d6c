// `lockstep bench <what> …`: one file a sub-verb; this is the table.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/bench_comm.h"
#include "cli/nearest.h"
#include "cli/verb.h"

namespace lockstep::cli {
namespace {

constexpr std::array kSubVerbs{
    Verb{"comm", "collectives among ranks of this machine, beside Gloo and Open MPI",
         run_bench_comm},
    Verb{"comm-rank", "", run_bench_comm_rank},  // what comm starts; help does not name it
};

void show_sub_verbs(std::ostream& out) {
  out << "lockstep bench <what> [options]: measures this machine\n\n";
  for (const auto& verb : kSubVerbs) {
    if (!verb.summary.empty()) out << fmt::format("  {:<10} {}\n", verb.name, verb.summary);
  }
  out << "\n`lockstep bench <what> --help` explains one of them.\n";
}

int unknown_sub_verb(std::string_view word, Streams streams) {
  std::vector<std::string_view> names;
  for (const auto& verb : kSubVerbs) {
    if (!verb.summary.empty()) names.push_back(verb.name);
  }
  const auto nearest = try_nearest(word, names);
  streams.error << fmt::format(
      "lockstep bench: \"{}\" is nothing it measures{} `lockstep bench --help` lists what is.\n",
      word, nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : ".");
  return kUsage;
}

}  // namespace

int run_bench(const std::vector<std::string>& arguments, Streams streams) {
  if (arguments.empty()) {
    show_sub_verbs(streams.out);
    return kUsage;
  }
  const std::string& word = arguments.front();
  if (word == "--help" || word == "-h") {
    show_sub_verbs(streams.out);
    return kSuccess;
  }
  const auto verb = std::ranges::find(kSubVerbs, word, &Verb::name);
  if (verb == kSubVerbs.end()) return unknown_sub_verb(word, streams);
  return verb->run({arguments.begin() + 1, arguments.end()}, streams);
}

}  // namespace lockstep::cli
