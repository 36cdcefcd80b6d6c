#include "cli/verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/nearest.h"
#include "lockstep/base/version.h"

namespace lockstep::cli {
namespace {

constexpr std::array kVerbs{
    Verb{"train", "train a GPT, ResNet or MLP on all cores or on a GPU", run_train},
    Verb{"generate", "generate text with a GPT that `lockstep train` has trained", run_generate},
    Verb{"run", "start a program as ranks on one node or several, as torchrun", run_run},
    Verb{"top", "show what each rank of a run does now", run_top},
    Verb{"report", "write the page of a run, or compare several runs", run_report},
    Verb{"data", "inspect, tokenize, audit and fetch data", run_data},
    Verb{"ckpt", "inspect, verify, compare, export and import checkpoints", run_ckpt},
    Verb{"bench", "benchmark collectives and data loading on this machine", run_bench},
    Verb{"doctor", "check this machine and this build, with what to do", run_doctor},
    Verb{"help", "print the help of a verb", run_help},
    Verb{"version", "print the version, the features of this build and this machine", run_version},
};

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

int dispatch(const std::vector<std::string>& arguments, Streams streams) {
  if (arguments.empty()) {
    run_help({}, streams);
    return kUsage;  // so that a script without its arguments fails
  }
  const std::string& word = arguments.front();
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (word == "--help" || word == "-h") return run_help(rest, streams);
  if (word == "--version" || word == "-V") {
    streams.out << "lockstep " << kVersion << '\n';
    return kSuccess;
  }
  const auto verb = std::ranges::find(kVerbs, word, &Verb::name);
  return verb == kVerbs.end() ? unknown_verb(word, streams) : verb->run(rest, streams);
}

int unknown_verb(std::string_view word, Streams streams) {
  std::vector<std::string_view> names;
  for (const auto& verb : kVerbs) names.push_back(verb.name);
  const auto nearest = try_nearest(word, names);
  streams.error << fmt::format(
      "lockstep: \"{}\" is not a verb{} `lockstep --help` lists the verbs.\n", word,
      nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : ".");
  return kUsage;
}

}  // namespace lockstep::cli
