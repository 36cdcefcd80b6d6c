#include "cli/duration.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

struct Unit {
  std::string_view name;
  double milliseconds;
};
constexpr std::array kUnits{Unit{"ms", 1}, Unit{"s", 1e3}, Unit{"min", 6e4}, Unit{"h", 36e5}};
constexpr double kLongest = 1e12;  // 30 years, well within the range of the clock

}  // namespace

std::chrono::milliseconds parse_duration(std::string_view option, std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit = stopped == end ? "s" : std::string_view(stopped, end);
  for (const auto& known : kUnits) {
    const double value = number * known.milliseconds;
    if (error == std::errc{} && unit == known.name && value >= 0 && value <= kLongest) {
      return std::chrono::milliseconds(static_cast<std::int64_t>(value));
    }
  }
  throw UsageError(
      fmt::format("{} is \"{}\", expected a time such as 500ms, 30s, 2min or 6h", option, text));
}

}  // namespace lockstep::cli
