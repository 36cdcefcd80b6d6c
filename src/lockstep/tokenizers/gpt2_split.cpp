#include "lockstep/tokenizers/gpt2_split.h"

#include <array>

#include "lockstep/tokenizers/unicode.h"

namespace lockstep {
namespace {

struct Character {
  CodePointClass kind;
  std::size_t num_bytes;
};

constexpr std::array<CodePointClass, 128> make_ascii_classes() {
  std::array<CodePointClass, 128> classes{};
  for (unsigned c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool number = c >= '0' && c <= '9';
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[c] = letter   ? CodePointClass::letter
                 : number ? CodePointClass::number
                 : space  ? CodePointClass::space
                          : CodePointClass::other;
  }
  return classes;
}
constexpr auto kAsciiClasses = make_ascii_classes();

Character character_at(std::string_view text, std::size_t at) noexcept {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 128) return {kAsciiClasses[byte], 1};
  const auto point = code_point_at(text, at);
  return {classify(point.value), point.num_bytes};
}

// The length of 's, 't, 're, 've, 'm, 'll or 'd at the front of `text`, else 0.
std::size_t contraction_bytes(std::string_view text) noexcept {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char next = text[1];
  if (next == 's' || next == 't' || next == 'm' || next == 'd') return 2;
  const auto pair = text.substr(1, 2);
  return pair == "re" || pair == "ve" || pair == "ll" ? 3 : 0;
}

std::size_t run_end(std::string_view text, std::size_t at, CodePointClass kind) noexcept {
  while (at < text.size()) {
    const auto character = character_at(text, at);
    if (character.kind != kind) break;
    at += character.num_bytes;
  }
  return at;
}

// A run of white space leaves its last character to the next piece, because a word includes one
// preceding space; except if the run is one character long, or the text ends with it.
std::size_t spaces_end(std::string_view text, std::size_t begin) noexcept {
  std::size_t at = begin;
  std::size_t last = begin;
  while (at < text.size()) {
    const auto character = character_at(text, at);
    if (character.kind != CodePointClass::space) break;
    last = at;
    at += character.num_bytes;
  }
  return at == text.size() || last == begin ? at : last;
}

}  // namespace

std::size_t gpt2_piece_end(std::string_view text, std::size_t begin) noexcept {
  if (const auto bytes = contraction_bytes(text.substr(begin)); bytes > 0) return begin + bytes;
  const auto at = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
  const auto character = character_at(text, at);
  if (character.kind == CodePointClass::space) return spaces_end(text, begin);
  return run_end(text, at + character.num_bytes, character.kind);
}

std::size_t gpt2_cut(std::string_view text, std::size_t from) noexcept {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (auto at = text.find(' ', from); at != std::string_view::npos; at = text.find(' ', at + 1)) {
    if (at > 0 && at + 1 < text.size() && is_letter(text[at - 1]) && is_letter(text[at + 1])) {
      return at;
    }
  }
  return text.size();
}

}  // namespace lockstep
