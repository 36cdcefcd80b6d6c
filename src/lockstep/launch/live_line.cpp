#include "lockstep/launch/live_line.h"

#include <fmt/format.h>

#include <charconv>

namespace lockstep {
namespace {

// An "operating system command" sequence that terminals do not know: if it ever reaches one, it
// shows nothing.
constexpr std::string_view kMark = "\x1b]lockstep-live;";
constexpr std::string_view kEnd = "\a";

}  // namespace

std::optional<int> live_columns(const Environment& environment) {
  const auto text = environment.find("LOCKSTEP_LIVE_COLUMNS");
  if (!text) return std::nullopt;
  int columns = 0;
  std::from_chars(text->data(), text->data() + text->size(), columns);
  return columns > 0 ? std::optional(columns) : std::nullopt;
}

std::string live_line(std::string_view text) { return fmt::format("{}{}{}\n", kMark, text, kEnd); }

std::optional<std::string_view> try_live_text(std::string_view line) {
  if (!line.starts_with(kMark) || !line.ends_with(kEnd)) return std::nullopt;
  return line.substr(kMark.size(), line.size() - kMark.size() - kEnd.size());
}

}  // namespace lockstep
