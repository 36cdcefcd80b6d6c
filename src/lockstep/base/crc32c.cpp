#include "lockstep/base/crc32c.h"

#include <cstring>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lockstep {
namespace {

using Thirds = std::array<std::uint32_t, 3>;
using Bytes = std::span<const std::byte>;

constexpr auto kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    auto crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0);
    table[byte] = crc;
  }
  return table;
}();

std::uint32_t by_table(Bytes bytes, std::uint32_t crc) noexcept {
  for (const auto byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
  }
  return crc;
}

// Without instructions for it.
void add_words_by_table(const std::byte* bytes, std::size_t stride, std::size_t num_words,
                        Thirds& crcs) noexcept {
  for (std::size_t i = 0; i < crcs.size(); ++i) {
    crcs[i] = by_table({bytes + i * stride, num_words * 8}, crcs[i]);
  }
}

// Three independent chains of instructions: their latencies overlap.
#if defined(__aarch64__)
[[gnu::target("+crc")]] void add_words(const std::byte* bytes, std::size_t stride,
                                       std::size_t num_words, Thirds& crcs) noexcept {
  auto [a, b, c] = crcs;
  for (std::size_t i = 0; i < num_words; ++i, bytes += 8) {
    std::array<std::uint64_t, 3> words;
    std::memcpy(&words[0], bytes, 8);
    std::memcpy(&words[1], bytes + stride, 8);
    std::memcpy(&words[2], bytes + 2 * stride, 8);
    a = __crc32cd(a, words[0]);
    b = __crc32cd(b, words[1]);
    c = __crc32cd(c, words[2]);
  }
  crcs = {a, b, c};
}
bool has_instructions() noexcept { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#elif defined(__x86_64__)
[[gnu::target("sse4.2")]] void add_words(const std::byte* bytes, std::size_t stride,
                                         std::size_t num_words, Thirds& crcs) noexcept {
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
bool has_instructions() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
#else
bool has_instructions() noexcept { return false; }
constexpr auto add_words = add_words_by_table;
#endif

const auto kAddWords = has_instructions() ? add_words : add_words_by_table;

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept { return ~by_table(bytes, ~0U); }

std::array<std::uint32_t, 3> crc32c_of_thirds(std::span<const std::byte> bytes) noexcept {
  Thirds crcs{~0U, ~0U, ~0U};
  const auto third = bytes.size() / 3 / 8 * 8;
  kAddWords(bytes.data(), third, third / 8, crcs);
  crcs[2] = by_table(bytes.subspan(3 * third), crcs[2]);
  for (auto& crc : crcs) crc = ~crc;
  return crcs;
}

}  // namespace lockstep
