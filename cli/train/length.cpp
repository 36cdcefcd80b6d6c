#include "cli/train/length.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Unit = TrainLength::Unit;

struct Spelling {
  std::string_view text;
  Unit unit;
  double factor = 1;
};
// The first of a unit is the one that is written.
constexpr std::array kSpellings{
    Spelling{"st", Unit::steps},       Spelling{"", Unit::steps},
    Spelling{"ep", Unit::epochs},      Spelling{"tok", Unit::tokens},
    Spelling{"s", Unit::seconds},      Spelling{"min", Unit::seconds, 60},
    Spelling{"h", Unit::seconds, 3600}};

struct Multiple {
  std::string_view text;
  double factor;
};
constexpr std::array kMultiples{Multiple{"B", 1e9}, Multiple{"G", 1e9}, Multiple{"M", 1e6},
                                Multiple{"k", 1e3}, Multiple{"", 1}};
constexpr double kMost = 1e15;  // whole numbers are exact in a double up to here

}  // namespace

TrainLength parse_train_length(std::string_view option, std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  const std::string_view rest(stopped, static_cast<std::size_t>(end - stopped));
  for (const auto& multiple : kMultiples) {
    for (const auto& spelling : kSpellings) {
      if (error != std::errc{} || rest != fmt::format("{}{}", multiple.text, spelling.text))
        continue;
      const double amount = number * multiple.factor * spelling.factor;
      if (amount > 0 && amount <= kMost) return {amount, spelling.unit};
    }
  }
  throw UsageError(
      fmt::format("{} is \"{}\", expected steps (300st), epochs (2ep), tokens (50Mtok) or a time "
                  "(90s, 10min, 6h)",
                  option, text));
}

std::string to_string(const TrainLength& length) {
  for (const auto& spelling : kSpellings) {
    if (spelling.unit != length.unit) continue;
    for (const auto& multiple : kMultiples) {
      const double number = length.amount / multiple.factor;
      if (multiple.factor > 1 && (length.unit != Unit::tokens || number < 1)) continue;
      return fmt::format("{}{}{}", number, multiple.text, spelling.text);
    }
  }
  return {};
}

std::optional<std::int64_t> try_steps(std::string_view option, const TrainLength& length,
                                      StepSize size) {
  const auto up = [](double steps) { return static_cast<std::int64_t>(std::ceil(steps)); };
  switch (length.unit) {
    case Unit::steps:
      return up(length.amount);
    case Unit::epochs:
      return up(length.amount * static_cast<double>(size.steps_per_epoch));
    case Unit::tokens:
      if (size.tokens == 0) {
        throw UsageError(fmt::format(
            "{} is {}, but this data has no tokens: give steps (300st), epochs (2ep) or a time",
            option, to_string(length)));
      }
      return up(length.amount / static_cast<double>(size.tokens));
    case Unit::seconds:
      break;
  }
  return std::nullopt;
}

}  // namespace lockstep::cli
