#include "cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>

#include "cli/nearest.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {

struct Arguments::Parser {
  // CLI11 sets `value`; parse() copies it to `result` if the flag was given.
  struct OptionalFlag {
    std::optional<bool>& result;
    bool value = false;
    CLI::Option* option = nullptr;  // owned by app
  };

  void parse(const std::vector<std::string>& words) {
    try {
      app.parse(
          std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 expects them reversed
    } catch (const CLI::ParseError& error) {
      throw UsageError(
          fmt::format("{}; `lockstep {} --help` lists the options", error.what(), verb));
    }
    for (const auto& flag : optional_flags) {
      if (flag.option->count() > 0) flag.result = flag.value;
    }
  }

  std::string verb;
  std::function<std::optional<std::string>(const std::string&)> explain;
  CLI::App app;
  std::deque<OptionalFlag> optional_flags;  // app refers to their values
};

Arguments::Arguments(std::string verb, bool& help) : parser_(std::make_unique<Parser>()) {
  parser_->verb = std::move(verb);
  parser_->app.set_help_flag();  // the verbs have their own help
  flag("-h,--help", help);
}

Arguments::~Arguments() = default;

void Arguments::flag(const std::string& names, bool& value) { parser_->app.add_flag(names, value); }

void Arguments::option(const std::string& names, std::string& value) {
  parser_->app.add_option(names, value);
}

void Arguments::option(const std::string& names, int& value) {
  parser_->app.add_option(names, value);
}

void Arguments::option(const std::string& names, int& value, IntRange allowed) {
  // Not CLI11's own range check: its message differs from version to version.
  parser_->app.add_option(names, value)->check([allowed](const std::string& text) {
    int number = 0;
    const bool is_allowed = CLI::detail::lexical_cast(text, number) && allowed.smallest <= number &&
                            number <= allowed.largest;
    return is_allowed ? std::string()
                      : fmt::format("\"{}\" is not a number from {} to {}", text, allowed.smallest,
                                    allowed.largest);
  });
}

void Arguments::option(const std::string& names, std::int64_t& value) {
  parser_->app.add_option(names, value);
}

void Arguments::option(const std::string& names, std::uint64_t& value) {
  parser_->app.add_option(names, value);
}

void Arguments::option(const std::string& names, double& value) {
  parser_->app.add_option(names, value);
}

void Arguments::option(const std::string& names, std::vector<std::string>& values) {
  parser_->app.add_option(names, values);
}

void Arguments::option(const std::string& names, std::vector<int>& values) {
  parser_->app.add_option(names, values)->delimiter(',');
}

void Arguments::flag(const std::string& names, std::optional<bool>& value) {
  auto& flag = parser_->optional_flags.emplace_back(Parser::OptionalFlag{.result = value});
  flag.option = parser_->app.add_flag(names, flag.value)->take_last();
}

void Arguments::option(const std::string& names, std::optional<std::string>& value) {
  parser_->app
      .add_option_function<std::string>(names, [&](const std::string& text) { value = text; })
      ->take_last();
}

void Arguments::explain_unknown(
    std::function<std::optional<std::string>(const std::string&)> explain) {
  parser_->explain = std::move(explain);
}

void Arguments::read(const std::vector<std::string>& words) {
  parser_->app.allow_extras();
  parser_->parse(words);
  std::vector<std::string> explanations;
  for (const auto& word : parser_->app.remaining()) {
    if (!parser_->explain || !word.starts_with("--")) continue;
    auto explanation = parser_->explain(word.substr(0, word.find('=')));
    if (explanation) explanations.push_back(*std::move(explanation));
  }
  if (!explanations.empty()) {
    throw UsageError(fmt::format("{}; `lockstep {} --help` lists the options",
                                 fmt::join(explanations, "; "), parser_->verb));
  }
  for (const auto& word : parser_->app.remaining()) {
    if (word.starts_with("-")) refuse(word);
    throw UsageError(
        fmt::format("\"{}\" is an unexpected argument; `lockstep {} --help` lists the arguments",
                    word, parser_->verb));
  }
}

std::vector<std::string> Arguments::read_leading(const std::vector<std::string>& words) {
  parser_->app.prefix_command();
  parser_->parse(words);
  return parser_->app.remaining();
}

void Arguments::refuse(const std::string& word) const {
  std::vector<std::string> names;
  for (const auto* option : std::as_const(parser_->app).get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto nearest = try_nearest(word.substr(0, word.find('=')), views);
  throw UsageError(fmt::format(
      "\"{}\" is not an option of lockstep {}{} `lockstep {} --help` lists the options.", word,
      parser_->verb, nearest ? fmt::format("; did you mean {}?", *nearest) : ".", parser_->verb));
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

std::vector<TomlItem> read_toml(std::istream& file, std::string_view path) {
  std::vector<TomlItem> items;
  try {
    for (const auto& item : CLI::ConfigTOML().from_config(file)) {
      if (item.name == "++" || item.name == "--") continue;  // CLI11's begin and end of a section
      items.push_back({item.fullname(), CLI::detail::join(item.inputs, ",")});
    }
  } catch (const CLI::Error& error) {
    throw UsageError(fmt::format("{}: {}", path, error.what()));
  }
  return items;
}

}  // namespace lockstep::cli
