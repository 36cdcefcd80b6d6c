// How lines look on a terminal: colour or none, the words in front, and bytes that must not reach a
// terminal as they are.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/environment.h"

namespace lockstep {

enum class ColorChoice { automatic, always, never };

/// `choice` beats NO_COLOR, which beats CLICOLOR_FORCE, which beats CLICOLOR=0, TERM=dumb and an
/// output that is no terminal.
[[nodiscard]] bool wants_color(ColorChoice choice, const Environment& environment,
                               bool is_terminal);

struct PrefixStyle {
  int size = 1;  // of the world: sets the width
  int node = 0;
  int num_nodes = 1;  // above 1, the node stands in front
  bool color = false;
};

/// "3 | ", "1:3 | " with several nodes, "ranks 0-7 (8x) | " for a line of several ranks.
[[nodiscard]] std::string line_prefix(std::span<const int> ranks, const PrefixStyle& style);

/// `text` with control bytes and what is not UTF-8 shown as \x1b; tabs stay. Colour sequences stay
/// if `color` and are left out if not.
[[nodiscard]] std::string printable(std::string_view text, bool color);

}  // namespace lockstep
