// Non-temporal stores: 16 bytes each is what every x86-64 has, and four of them fill the buffer
// that goes out as one line. Memory is the limit here, not the width of registers.
#include <emmintrin.h>

#include <bit>

#include "lockstep/flat/noted_lines_internal.h"

namespace lockstep {
namespace {

struct PastCaches {
  // Processors fetch ahead by themselves, but stop at the end of each page of 4 KiB.
  static void begin_line(const std::byte* from) noexcept {
    __builtin_prefetch(from + 2048);  // beyond the end it does nothing
  }
  template <typename Register>
  static void write(std::byte* to, Register bits) noexcept {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), std::bit_cast<__m128i>(bits));
  }
};

}  // namespace

template <typename Word>
Word stream_lines(std::byte* to, const std::byte* from, std::size_t lines,
                  Exponent<Word> exponent) noexcept {
  const auto notes = copy_each<PastCaches>(to, from, lines, exponent);
  // Such stores are ordered by nothing else: not by the counters that tell others of this memory.
  _mm_sfence();
  return notes;
}
template std::uint16_t stream_lines(std::byte*, const std::byte*, std::size_t,
                                    Exponent<std::uint16_t>) noexcept;
template std::uint32_t stream_lines(std::byte*, const std::byte*, std::size_t,
                                    Exponent<std::uint32_t>) noexcept;
template std::uint64_t stream_lines(std::byte*, const std::byte*, std::size_t,
                                    Exponent<std::uint64_t>) noexcept;

}  // namespace lockstep
