// A line that is shown in place, and replaced by the next one: progress. A rank prints it as an
// ordinary line that begins with a mark; the launcher keeps it out of the rank's log and shows it
// as the last line of the terminal. Only where there is a terminal: LOCKSTEP_LIVE_COLUMNS tells a
// rank how wide it is, and is not set where nobody looks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/environment.h"

namespace lockstep {

/// The columns that a live line may have; none where there is no terminal: print plain lines there.
[[nodiscard]] std::optional<int> live_columns(const Environment& environment);

/// What to print, in one write, to show `text` as the live line. Empty text takes it away.
[[nodiscard]] std::string live_line(std::string_view text);

/// The text, if `line` is what live_line made, without its newline.
[[nodiscard]] std::optional<std::string_view> try_live_text(std::string_view line);

}  // namespace lockstep
