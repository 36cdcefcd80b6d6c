#include "cli/sub_verb.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/nearest.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {

int dispatch_sub_verb(std::string_view verb, std::span<const Verb> sub_verbs, std::string_view help,
                      const std::vector<std::string>& arguments, Streams streams) {
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h") {
    streams.out << help;
    return arguments.empty() ? kUsage : kSuccess;
  }
  const auto& word = arguments.front();
  const auto found = std::ranges::find(sub_verbs, word, &Verb::name);
  if (found == sub_verbs.end()) {
    std::vector<std::string_view> names;
    for (const auto& sub : sub_verbs) names.push_back(sub.name);
    const auto nearest = try_nearest(word, names);
    streams.error << fmt::format(
        "lockstep {}: \"{}\" is not one of its verbs{} `lockstep {} --help` lists the verbs.\n",
        verb, word, nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : ".", verb);
    return kUsage;
  }
  try {
    return found->run({arguments.begin() + 1, arguments.end()}, streams);
  } catch (const Error& error) {
    return report(fmt::format("{} {}", verb, word), error, streams.error);
  }
}

}  // namespace lockstep::cli
