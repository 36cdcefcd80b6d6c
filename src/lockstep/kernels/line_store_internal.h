// How a loop writes whole lines, a register at a time: through the caches or past them.
#pragma once

#include <cstddef>
#include <cstring>

#include "lockstep/kernels/dispatch.h"

#ifdef __x86_64__
#include <immintrin.h>

#include <bit>
#endif

namespace lockstep {
namespace {

struct CachedStore {
  static constexpr std::size_t kBytes = kRegisterBytes;

  static void begin_line(const std::byte* /*from*/) noexcept {}
  template <typename Register>
  static void write(std::byte* to, Register bits) noexcept {
    std::memcpy(to, &bits, sizeof(bits));
  }
  static void finish() noexcept {}
};

#ifdef __x86_64__
// `to` is aligned to the register.
struct StreamingStore {
  static constexpr std::size_t kBytes = kRegisterBytes;

  // Processors fetch ahead by themselves, but stop at the end of each page of 4 KiB.
  static void begin_line(const std::byte* from) noexcept {
    __builtin_prefetch(from + 2048);  // beyond the end it does nothing
  }
  template <typename Register>
  static void write(std::byte* to, Register bits) noexcept {
    if constexpr (sizeof(Register) == 64) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), std::bit_cast<__m512i>(bits));
    } else if constexpr (sizeof(Register) == 32) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to), std::bit_cast<__m256i>(bits));
    } else {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), std::bit_cast<__m128i>(bits));
    }
  }
  // Such stores are ordered by nothing else: not by the counters that tell others of this memory.
  static void finish() noexcept { _mm_sfence(); }
};
#else
// Cores of Arm see by themselves that whole lines are written, and do not read them first.
using StreamingStore = CachedStore;
#endif

}  // namespace
}  // namespace lockstep
