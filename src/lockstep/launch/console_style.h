// The form of lines on a terminal: color, prefix, and the escaping of bytes that a terminal must
// not receive.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/environment.h"

namespace lockstep {

enum class ColorChoice { automatic, always, never };

/// Priority: `choice`, then NO_COLOR, then CLICOLOR_FORCE, then CLICOLOR=0, TERM=dumb and an output
/// that is not a terminal.
[[nodiscard]] bool wants_color(ColorChoice choice, const Environment& environment,
                               bool is_terminal);

struct PrefixStyle {
  int size = 1;  // of the world: determines the width
  int node = 0;
  int num_nodes = 1;  // above 1, the prefix starts with the node
  bool color = false;
};

/// "3 | ", "1:3 | " with several nodes, "ranks 0-7 (8x) | " for a line of several ranks.
[[nodiscard]] std::string line_prefix(std::span<const int> ranks, const PrefixStyle& style);

/// `text` with control characters and invalid UTF-8 escaped, as in \x1b; tabs stay. Color sequences
/// stay if `color` is set and are removed otherwise.
[[nodiscard]] std::string printable(std::string_view text, bool color);

}  // namespace lockstep
