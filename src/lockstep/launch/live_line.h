// Live lines: a line of progress that the next one replaces. A rank prints it as an ordinary line
// that begins with an escape sequence; the launcher omits it from the rank's log and shows it as
// the last line of the terminal. Live lines need a terminal: LOCKSTEP_LIVE_COLUMNS gives a rank its
// width, and is not set without one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/environment.h"

namespace lockstep {

/// The width of a live line in columns; nullopt without a terminal: print plain lines then.
[[nodiscard]] std::optional<int> live_columns(const Environment& environment);

/// The bytes that show `text` as the live line; print them with one write. Empty text removes it.
[[nodiscard]] std::string live_line(std::string_view text);

/// The text, if `line` is a result of live_line() without its newline; nullopt otherwise.
[[nodiscard]] std::optional<std::string_view> try_live_text(std::string_view line);

}  // namespace lockstep
