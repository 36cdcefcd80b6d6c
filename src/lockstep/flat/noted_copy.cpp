#include "lockstep/flat/noted_copy.h"

#include <cstring>

namespace lockstep {
namespace {

constexpr std::size_t kBytes = 16;  // of a register
constexpr std::size_t kParts = kNotedLine / kBytes;

// Notes are or-ed in several registers: one chain of them would take longer than the copy. Written
// as a loop over elements, compilers make this a memcpy and a second pass over the source.
template <typename Word>
Word copy_each(std::byte* __restrict to, const std::byte* __restrict from, std::size_t lines,
               Exponent<Word> exponent) noexcept {
  using Register [[gnu::vector_size(kBytes)]] = Word;
  Register notes[kParts] = {};
  for (std::size_t i = 0; i < lines; ++i) {
    for (std::size_t part = 0; part < kParts; ++part) {
      const auto at = i * kNotedLine + part * kBytes;
      Register bits;
      std::memcpy(&bits, from + at, kBytes);
      std::memcpy(to + at, &bits, kBytes);
      notes[part] |= (bits & exponent.mask) + exponent.lowest;
    }
  }
  Word all = 0;
  for (const auto& part : notes) {
    for (std::size_t i = 0; i < kBytes / sizeof(Word); ++i) all = static_cast<Word>(all | part[i]);
  }
  return all;
}

}  // namespace

std::uint16_t copy_lines(std::byte* to, const std::byte* from, std::size_t lines,
                         Exponent<std::uint16_t> exponent) noexcept {
  return copy_each(to, from, lines, exponent);
}
std::uint32_t copy_lines(std::byte* to, const std::byte* from, std::size_t lines,
                         Exponent<std::uint32_t> exponent) noexcept {
  return copy_each(to, from, lines, exponent);
}
std::uint64_t copy_lines(std::byte* to, const std::byte* from, std::size_t lines,
                         Exponent<std::uint64_t> exponent) noexcept {
  return copy_each(to, from, lines, exponent);
}

}  // namespace lockstep
