#include "lockstep/tokenizers/byte_letters_internal.h"
#include "lockstep/tokenizers/unicode.h"

namespace lockstep {
namespace {

constexpr unsigned kFirstOther = 0x100;

constexpr bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::array<unsigned char, 256> make_order() {
  std::array<unsigned char, 256> order{};
  std::size_t at = 0;
  for (const bool printable : {true, false}) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (is_printable(byte) == printable) order[at++] = static_cast<unsigned char>(byte);
    }
  }
  return order;
}
constexpr auto kOrder = make_order();
constexpr std::size_t kNumPrintable = 188;

}  // namespace

const std::array<unsigned char, 256>& bytes_in_order() noexcept { return kOrder; }

std::optional<std::string> try_bytes_of_letters(std::string_view letters) {
  if (try_find_invalid_utf8(letters)) return std::nullopt;
  std::string bytes;
  for (std::size_t at = 0; at < letters.size();) {
    const auto letter = code_point_at(letters, at);
    at += letter.num_bytes;
    if (letter.value < kFirstOther && is_printable(letter.value)) {
      bytes += static_cast<char>(letter.value);
    } else if (letter.value >= kFirstOther && letter.value - kFirstOther < 256 - kNumPrintable) {
      bytes += static_cast<char>(kOrder[kNumPrintable + letter.value - kFirstOther]);
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace lockstep
