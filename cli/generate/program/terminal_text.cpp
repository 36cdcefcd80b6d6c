#include "cli/generate/program/terminal_text.h"

#include <bit>

#include "lockstep/tokenizers/unicode.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kUnknown = "\xef\xbf\xbd";  // U+FFFD

// The number of bytes of a character whose first byte is `first`; 1 for an invalid first byte.
std::size_t wanted_bytes(char first) {
  const int ones = std::countl_one(static_cast<unsigned char>(first));
  return ones >= 2 && ones <= 4 ? static_cast<std::size_t>(ones) : 1;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

bool is_shown(char32_t letter) {
  return letter == '\n' || letter == '\t' || (letter >= 0x20 && letter < 0x7f) || letter >= 0xa0;
}

}  // namespace

std::string TerminalText::add(std::string_view piece) {
  held_ += piece;
  std::string shown;
  std::size_t at = 0;
  while (at < held_.size()) {
    const auto wanted = wanted_bytes(held_[at]);
    std::size_t have = 1;
    while (have < wanted && at + have < held_.size() && is_continuation(held_[at + have])) ++have;
    if (have < wanted && at + have == held_.size()) break;  // more may come
    const auto bytes = std::string_view(held_).substr(at, have);
    const bool is_whole = have == wanted && !try_find_invalid_utf8(bytes);
    shown += is_whole && is_shown(code_point_at(bytes, 0).value) ? bytes : kUnknown;
    at += have;
  }
  held_.erase(0, at);
  return shown;
}

std::string TerminalText::end() {
  const bool is_cut = !held_.empty();
  held_.clear();
  return std::string(is_cut ? kUnknown : "");
}

}  // namespace lockstep::cli
