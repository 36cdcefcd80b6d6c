#include <fmt/format.h>

#include <iterator>

#include "lockstep/base/quote.h"

namespace lockstep {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 100;
  std::string result = "\"";
  for (const char c : text.substr(0, longest)) {
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
      result += c;
    } else {
      fmt::format_to(std::back_inserter(result), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  result += text.size() > longest ? "\"..." : "\"";
  return result;
}

}  // namespace lockstep
