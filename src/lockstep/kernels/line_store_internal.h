// How a loop writes whole cache lines, one register at a time: through the caches or past them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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

  // Hardware prefetchers stop at the end of each page of 4 KiB.
  static void begin_line(const std::byte* from) noexcept {
    __builtin_prefetch(from + 2048);  // no effect beyond the end of memory
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
  // Streaming stores need their own fence: a release store of a counter does not order them.
  static void finish() noexcept { _mm_sfence(); }
};
#else
// Arm cores detect writes of whole lines and do not read the lines first.
using StreamingStore = CachedStore;
#endif

/// Whether a line of streaming stores may begin at `address`.
[[gnu::always_inline]] inline bool is_aligned_line(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) % 64 == 0;
}

/// Writes a line, or an aligned half of one, past the caches. StreamingStore::finish() orders it.
template <typename T, std::size_t kCount>
[[gnu::always_inline]] inline void stream_line(T* to, const std::array<T, kCount>& line) noexcept {
  constexpr auto kBytes = std::min(StreamingStore::kBytes, sizeof(line));
  using Register [[gnu::vector_size(kBytes)]] = char;
  for (std::size_t part = 0; part < sizeof(line); part += kBytes) {
    Register bits;
    std::memcpy(&bits, reinterpret_cast<const std::byte*>(line.data()) + part, sizeof(bits));
    StreamingStore::write(reinterpret_cast<std::byte*>(to) + part, bits);
  }
}

}  // namespace
}  // namespace lockstep
