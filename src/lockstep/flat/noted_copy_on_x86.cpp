// Non-temporal stores: 16 bytes each is what every x86-64 has, and four of them fill the buffer
// that goes out as one line. Memory is the limit here, not the width of registers.
#include <emmintrin.h>

#include <cstring>

#include "lockstep/flat/noted_copy.h"

namespace lockstep {
namespace {

constexpr std::size_t kBytes = sizeof(__m128i);
constexpr std::size_t kParts = kNotedLine / kBytes;
// How far ahead the source is asked for. Processors fetch ahead by themselves, but stop at the end
// of each page of 4 KiB.
constexpr std::size_t kAhead = 2048;

template <typename Word>
Word stream_each(std::byte* __restrict to, const std::byte* __restrict from, std::size_t lines,
                 Exponent<Word> exponent) noexcept {
  using Register [[gnu::vector_size(kBytes)]] = Word;
  Register notes[kParts] = {};
  for (std::size_t i = 0; i < lines; ++i) {
    __builtin_prefetch(from + i * kNotedLine + kAhead);  // beyond the end it does nothing
    for (std::size_t part = 0; part < kParts; ++part) {
      const auto at = i * kNotedLine + part * kBytes;
      const auto loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), loaded);
      Register bits;
      std::memcpy(&bits, &loaded, kBytes);
      notes[part] |= (bits & exponent.mask) + exponent.lowest;
    }
  }
  // Such stores are ordered by nothing else: not by the counters that tell others of this memory.
  _mm_sfence();
  Word all = 0;
  for (const auto& part : notes) {
    for (std::size_t i = 0; i < kBytes / sizeof(Word); ++i) all = static_cast<Word>(all | part[i]);
  }
  return all;
}

}  // namespace

std::uint16_t stream_lines(std::byte* to, const std::byte* from, std::size_t lines,
                           Exponent<std::uint16_t> exponent) noexcept {
  return stream_each(to, from, lines, exponent);
}
std::uint32_t stream_lines(std::byte* to, const std::byte* from, std::size_t lines,
                           Exponent<std::uint32_t> exponent) noexcept {
  return stream_each(to, from, lines, exponent);
}
std::uint64_t stream_lines(std::byte* to, const std::byte* from, std::size_t lines,
                           Exponent<std::uint64_t> exponent) noexcept {
  return stream_each(to, from, lines, exponent);
}

}  // namespace lockstep
