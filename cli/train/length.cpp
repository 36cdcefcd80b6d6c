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
// The first spelling of a unit is the one that is written.
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

// The unit of each length option, and what its value looks like; in the order of Unit.
struct LengthOption {
  std::string_view name;
  std::string_view expected;
};
constexpr std::array kLengthOptions{
    LengthOption{"--steps", "a number of steps such as 300 or 10k"},
    LengthOption{"--epochs", "a number of epochs such as 2 or 0.5"},
    LengthOption{"--tokens", "a number of tokens such as 50M or 1B"},
    LengthOption{"--time", "a time such as 90s, 10min or 6h"}};

// Without the unit: "50M". Only tokens are written with k, M and B.
std::string amount_text(const TrainLength& length) {
  for (const auto& multiple : kMultiples) {
    const double number = length.amount / multiple.factor;
    if (multiple.factor > 1 && (length.unit != Unit::tokens || number < 1)) continue;
    return fmt::format("{}{}", number, multiple.text);
  }
  return {};
}

std::string_view unit_text(Unit unit) {
  for (const auto& spelling : kSpellings) {
    if (spelling.unit == unit) return spelling.text;
  }
  return {};
}

// `text` as a number that is followed by one of kMultiples and by a spelling of a unit, where
// `is_allowed(spelling)`.
template <typename Allowed>
std::optional<TrainLength> try_parse(std::string_view text, const Allowed& is_allowed) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view suffix(stopped, static_cast<std::size_t>(end - stopped));
  for (const auto& multiple : kMultiples) {
    for (const auto& spelling : kSpellings) {
      if (!is_allowed(spelling) || suffix != fmt::format("{}{}", multiple.text, spelling.text)) {
        continue;
      }
      const double amount = number * multiple.factor * spelling.factor;
      if (amount > 0 && amount <= kMost) return TrainLength{amount, spelling.unit};
    }
  }
  return std::nullopt;
}

}  // namespace

TrainLength parse_train_length(std::string_view option, std::string_view text) {
  const auto length = try_parse(text, [](const Spelling&) { return true; });
  if (length) return *length;
  throw UsageError(
      fmt::format("{} is \"{}\", expected steps (300 or 300st), epochs (2ep) or tokens (50Mtok)",
                  option, text));
}

std::string to_string(const TrainLength& length) {
  return amount_text(length) + std::string(unit_text(length.unit));
}

std::string_view length_option(Unit unit) {
  return kLengthOptions[static_cast<std::size_t>(unit)].name;
}

TrainLength parse_length_in(Unit unit, std::string_view text) {
  const auto is_time = [](const Spelling& spelling) { return spelling.unit == Unit::seconds; };
  const auto is_bare = [](const Spelling& spelling) { return spelling.text.empty(); };
  const auto length = unit == Unit::seconds ? try_parse(text, is_time) : try_parse(text, is_bare);
  if (length) return {length->amount, unit};
  const auto& option = kLengthOptions[static_cast<std::size_t>(unit)];
  throw UsageError(fmt::format("{} is \"{}\", expected {}", option.name, text, option.expected));
}

std::string value_text(const TrainLength& length) {
  return length.unit == Unit::seconds ? to_string(length) : amount_text(length);
}

std::string in_words(const TrainLength& length) {
  constexpr std::array names{"step", "epoch", "token", "s"};
  const bool is_plural = length.unit != Unit::seconds && length.amount != 1;
  return fmt::format("{} {}{}", amount_text(length), names[static_cast<std::size_t>(length.unit)],
                     is_plural ? "s" : "");
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
        throw UsageError(fmt::format("{} is {}, but this data has no tokens: give steps or epochs",
                                     option, in_words(length)));
      }
      return up(length.amount / static_cast<double>(size.tokens));
    case Unit::seconds:
      break;
  }
  return std::nullopt;
}

}  // namespace lockstep::cli
