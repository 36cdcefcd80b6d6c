#include "lockstep/tokenizers/unicode.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/tokenizers/unicode_ranges_internal.h"

namespace lockstep {
namespace {

bool lies_in(std::span<const CodePointRange> ranges, char32_t point) noexcept {
  const auto after = std::ranges::upper_bound(ranges, point, {}, &CodePointRange::first);
  return after != ranges.begin() && point <= std::prev(after)->last;
}

bool is_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

unsigned byte_at(std::string_view text, std::size_t at) noexcept {
  return static_cast<unsigned char>(text[at]);
}

// Table 3-7 of the Unicode standard: which second byte each first byte allows.
bool second_byte_fits(unsigned first, unsigned second) noexcept {
  switch (first) {
    case 0xe0:
      return second >= 0xa0 && second <= 0xbf;
    case 0xed:
      return second >= 0x80 && second <= 0x9f;
    case 0xf0:
      return second >= 0x90 && second <= 0xbf;
    case 0xf4:
      return second >= 0x80 && second <= 0x8f;
    default:
      return second >= 0x80 && second <= 0xbf;
  }
}

std::size_t length_by_first_byte(unsigned first) noexcept {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return 2;
  if (first >= 0xe0 && first <= 0xef) return 3;
  if (first >= 0xf0 && first <= 0xf4) return 4;
  return 0;
}

}  // namespace

CodePointClass classify(char32_t code_point) noexcept {
  if (lies_in(letter_ranges(), code_point)) return CodePointClass::letter;
  if (lies_in(number_ranges(), code_point)) return CodePointClass::number;
  return is_space(code_point) ? CodePointClass::space : CodePointClass::other;
}

std::optional<std::size_t> try_find_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    // Eight ASCII bytes at a time: most text is ASCII.
    if (text.size() - at >= 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const auto first = byte_at(text, at);
    const auto length = length_by_first_byte(first);
    if (length == 0 || text.size() - at < length) return at;
    if (length > 1 && !second_byte_fits(first, byte_at(text, at + 1))) return at;
    for (std::size_t i = 2; i < length; ++i) {
      if ((byte_at(text, at + i) & 0xc0u) != 0x80) return at;
    }
    at += length;
  }
  return std::nullopt;
}

CodePoint code_point_at(std::string_view text, std::size_t at) noexcept {
  const auto first = byte_at(text, at);
  const auto length = length_by_first_byte(first);
  char32_t value = length == 1 ? first : first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) value = value << 6 | (byte_at(text, at + i) & 0x3fu);
  return {value, length};
}

}  // namespace lockstep
