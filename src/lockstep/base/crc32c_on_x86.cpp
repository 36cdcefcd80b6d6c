#include <immintrin.h>

#include <cstring>

#include "lockstep/base/crc32c_internal.h"

namespace lockstep {
namespace {

// Three independent chains of instructions: their latencies overlap.
[[gnu::target("sse4.2")]] void add_words(const std::byte* bytes, std::size_t stride,
                                         std::size_t num_words, ThirdsCrc& crcs) noexcept {
  std::uint64_t a = crcs[0];
  std::uint64_t b = crcs[1];
  std::uint64_t c = crcs[2];
  for (std::size_t i = 0; i < num_words; ++i, bytes += 8) {
    std::array<std::uint64_t, 3> words;
    std::memcpy(&words[0], bytes, 8);
    std::memcpy(&words[1], bytes + stride, 8);
    std::memcpy(&words[2], bytes + 2 * stride, 8);
    a = _mm_crc32_u64(a, words[0]);
    b = _mm_crc32_u64(b, words[1]);
    c = _mm_crc32_u64(c, words[2]);
  }
  crcs = {static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(c)};
}

// By folding, four lanes per register and two registers per third.
constexpr std::size_t kRegisterBytes = 64;
constexpr std::size_t kFoldBytes = 2 * kRegisterBytes;
constexpr auto kFold = fold_factors(kFoldBytes);

struct Lanes {
  __m512i near;
  __m512i far;
};

[[gnu::target("avx512f,vpclmulqdq,sse4.2")]] inline __m512i fold(__m512i lanes, __m512i by,
                                                                 const std::byte* onto) noexcept {
  const auto moved = _mm512_xor_si512(_mm512_clmulepi64_epi128(lanes, by, 0x00),
                                      _mm512_clmulepi64_epi128(lanes, by, 0x11));
  return _mm512_xor_si512(moved, _mm512_loadu_si512(onto));
}

[[gnu::target("avx512f,vpclmulqdq,sse4.2")]] inline Lanes load(const std::byte* bytes,
                                                               std::uint32_t crc) noexcept {
  const auto first = _mm512_loadu_si512(bytes);
  return {_mm512_xor_si512(first, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc)))),
          _mm512_loadu_si512(bytes + kRegisterBytes)};
}

[[gnu::target("avx512f,vpclmulqdq,sse4.2")]] inline void advance(Lanes& lanes, __m512i by,
                                                                 const std::byte* onto) noexcept {
  lanes.near = fold(lanes.near, by, onto);
  lanes.far = fold(lanes.far, by, onto + kRegisterBytes);
}

[[gnu::target("avx512f,vpclmulqdq,sse4.2")]] inline std::uint32_t crc_of(
    const Lanes& lanes) noexcept {
  std::array<std::uint64_t, kFoldBytes / 8> words;
  _mm512_storeu_si512(words.data(), lanes.near);
  _mm512_storeu_si512(words.data() + words.size() / 2, lanes.far);
  std::uint64_t crc = 0;
  for (const auto word : words) crc = _mm_crc32_u64(crc, word);
  return static_cast<std::uint32_t>(crc);
}

[[gnu::target("avx512f,vpclmulqdq,sse4.2")]] void add_words_folded(const std::byte* bytes,
                                                                   std::size_t stride,
                                                                   std::size_t num_words,
                                                                   ThirdsCrc& crcs) noexcept {
  const auto num_folds = num_words * 8 / kFoldBytes;
  if (num_folds < 2) return add_words(bytes, stride, num_words, crcs);
  constexpr auto kLow = static_cast<long long>(kFold[0]);
  constexpr auto kHigh = static_cast<long long>(kFold[1]);
  const auto by = _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
  auto first = load(bytes, crcs[0]);
  auto second = load(bytes + stride, crcs[1]);
  auto third = load(bytes + 2 * stride, crcs[2]);
  for (std::size_t fold_index = 1; fold_index < num_folds; ++fold_index) {
    bytes += kFoldBytes;
    advance(first, by, bytes);
    advance(second, by, bytes + stride);
    advance(third, by, bytes + 2 * stride);
  }
  crcs = {crc_of(first), crc_of(second), crc_of(third)};
  add_words(bytes + kFoldBytes, stride, num_words - num_folds * kFoldBytes / 8, crcs);
}

}  // namespace

AddWords find_add_words() noexcept {
  if (__builtin_cpu_supports("sse4.2") == 0) return nullptr;
  const bool folds =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
  return folds ? add_words_folded : add_words;
}

}  // namespace lockstep
