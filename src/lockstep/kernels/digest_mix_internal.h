// The mix of digest.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep {

static_assert(std::endian::native == std::endian::little, "the digest reads little-endian words");

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
constexpr std::size_t kDigestWord = sizeof(std::uint64_t);

[[gnu::always_inline]] constexpr std::uint64_t digest_mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace lockstep
