#include "cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/nearest.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {

void refuse_option(const CLI::App& app, std::string_view verb, const std::string& word) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto nearest = try_nearest(word.substr(0, word.find('=')), views);
  throw UsageError(
      fmt::format("\"{}\" is not an option of lockstep {}{} `lockstep {} --help` lists them.", word,
                  verb, nearest ? fmt::format("; did you mean {}?", *nearest) : ".", verb));
}

void read_arguments(CLI::App& app, std::string_view verb,
                    const std::vector<std::string>& arguments) {
  app.allow_extras();
  try {
    app.parse(
        std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 wants it reversed
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; `lockstep {} --help` lists the options", error.what(), verb));
  }
  for (const auto& word : app.remaining()) {
    if (word.starts_with("-")) refuse_option(app, verb, word);
    throw UsageError(
        fmt::format("\"{}\" is one argument too many; see `lockstep {} --help`", word, verb));
  }
}

std::size_t read_choice(std::string_view option, std::string_view text,
                        const std::vector<std::string_view>& words) {
  const auto found = std::ranges::find(words, text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  const auto nearest = try_nearest(text, words);
  throw UsageError(fmt::format("{} is \"{}\", expected one of {}{}", option, text,
                               fmt::join(words, ", "),
                               nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
}

}  // namespace lockstep::cli
