#include "lockstep/launch/console_style.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/launch/rank_list.h"

namespace lockstep {
namespace {

// The terminal's basic colors without black, white and red: neighbors differ, and red is for
// errors.
constexpr std::array kColors{36, 33, 32, 35, 34, 96, 93, 92, 95, 94};

// The number of bytes of the UTF-8 character at the start of `text`; 0 if there is none.
std::size_t letter_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xc2 && first < 0xe0 ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;  // overlong encoding
  if (first == 0xed && byte(1) > 0x9f) return 0;  // surrogate
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  if (first == 0xc2 && byte(1) < 0xa0) return 0;  // C1 control characters
  return length;
}

// The number of bytes of the color sequence, such as ESC [ 1 ; 31 m, at the start of `text`; 0 if
// there is none.
std::size_t color_bytes(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const auto end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

std::string plain_prefix(std::span<const int> ranks, const PrefixStyle& style) {
  const auto node = style.num_nodes > 1 ? fmt::format("{}:", style.node) : std::string();
  if (ranks.size() > 1) {
    return fmt::format("ranks {}{} ({}x)", node, format_rank_list(ranks), ranks.size());
  }
  const auto width = fmt::formatted_size("{}", std::max(style.size - 1, 0));
  return fmt::format("{}{:>{}}", node, ranks[0], width);
}

}  // namespace

bool wants_color(ColorChoice choice, const Environment& environment, bool is_terminal) {
  if (choice != ColorChoice::automatic) return choice == ColorChoice::always;
  if (environment.find("NO_COLOR")) return false;
  if (environment.find("CLICOLOR_FORCE").value_or("0") != "0") return true;
  if (environment.find("CLICOLOR") == "0") return false;
  return is_terminal && environment.find("TERM") != "dumb";
}

std::string line_prefix(std::span<const int> ranks, const PrefixStyle& style) {
  const auto words = plain_prefix(ranks, style);
  if (!style.color) return words + " | ";
  if (ranks.size() > 1) return fmt::format("\x1b[1m{} |\x1b[0m ", words);
  const auto color = kColors[static_cast<std::size_t>(ranks[0]) % kColors.size()];
  return fmt::format("\x1b[{}m{} |\x1b[0m ", color, words);
}

std::string printable(std::string_view text, bool color) {
  std::string result;
  result.reserve(text.size());
  bool colored = false;
  while (!text.empty()) {
    std::size_t length = color_bytes(text);
    if (length > 0) {
      colored = color;
      if (color) result += text.substr(0, length);
    } else if (const auto byte = static_cast<unsigned char>(text[0]);
               (byte < ' ' && byte != '\t') || byte == 0x7f || letter_bytes(text) == 0) {
      length = 1;
      result += fmt::format("\\x{:02x}", byte);
    } else {
      length = letter_bytes(text);
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  if (colored) result += "\x1b[0m";  // a color must not continue into the next line
  return result;
}

}  // namespace lockstep
