#include <cstring>

#include "lockstep/flat/noted_copy_internal.h"

namespace lockstep {
namespace {

// One vector of 64 bytes is several registers, so that or-ing notes is several chains: one would
// cost more than the copy. As a loop over elements, compilers make this a memcpy and a second pass.
template <typename Word>
Word copy_each(std::byte* __restrict to, const std::byte* __restrict from, std::size_t lines,
               Exponent<Word> exponent) noexcept {
  using Line [[gnu::vector_size(kNotedLine)]] = Word;
  Line notes{};
  for (std::size_t i = 0; i < lines; ++i) {
    Line line;
    std::memcpy(&line, from + i * kNotedLine, kNotedLine);
    std::memcpy(to + i * kNotedLine, &line, kNotedLine);
    notes |= (line & exponent.mask) + exponent.lowest;
  }
  Word all = 0;
  for (std::size_t i = 0; i < kNotedLine / sizeof(Word); ++i) {
    all = static_cast<Word>(all | notes[i]);
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
