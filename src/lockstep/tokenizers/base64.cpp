#include <cstddef>

#include "lockstep/tokenizers/base64_internal.h"

namespace lockstep {
namespace {

constexpr std::string_view kLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::optional<std::string> try_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t num_padding = 0;
  while (num_padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++num_padding;
  }
  std::string bytes;
  unsigned bits = 0;
  unsigned num_bits = 0;
  for (const char letter : text) {
    const auto value = kLetters.find(letter);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<unsigned>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits & 0xffu);
    bits &= (1u << num_bits) - 1;
  }
  // The remaining bits are the zero bits before the padding, two per padding character.
  if (bits != 0 || num_bits != num_padding * 2) return std::nullopt;
  return bytes;
}

}  // namespace lockstep
