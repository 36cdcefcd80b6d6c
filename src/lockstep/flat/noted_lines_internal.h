// The loop of noted_copy.h, for each way to write.
#pragma once

#include <cstddef>
#include <cstring>

#include "lockstep/flat/noted_copy.h"

namespace lockstep {

// `Way` writes registers, and is told of each line before it is read. Notes are or-ed in several
// registers: one chain of them would take longer than the copy. Written as a loop over elements,
// compilers make this a memcpy and a second pass over the source.
template <typename Way, typename Word>
Word copy_each(std::byte* __restrict to, const std::byte* __restrict from, std::size_t lines,
               Exponent<Word> exponent) noexcept {
  constexpr std::size_t kBytes = 16;
  constexpr std::size_t kParts = kNotedLine / kBytes;
  using Register [[gnu::vector_size(kBytes)]] = Word;
  Register notes[kParts] = {};
  for (std::size_t i = 0; i < lines; ++i) {
    Way::begin_line(from + i * kNotedLine);
    for (std::size_t part = 0; part < kParts; ++part) {
      const auto at = i * kNotedLine + part * kBytes;
      Register bits;
      std::memcpy(&bits, from + at, kBytes);
      Way::write(to + at, bits);
      notes[part] |= (bits & exponent.mask) + exponent.lowest;
    }
  }
  Word all = 0;
  for (const auto& part : notes) {
    for (std::size_t i = 0; i < kBytes / sizeof(Word); ++i) all = static_cast<Word>(all | part[i]);
  }
  return all;
}

}  // namespace lockstep
