#include "lockstep/base/digest.h"

#include <bit>
#include <cstring>

#include "lockstep/base/assert.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the digest reads little-endian words");

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

void Digest::add(std::uint64_t position, std::span<const std::byte> chunk) noexcept {
  LOCKSTEP_ASSERT(position % kWord == 0, "a chunk starts at a multiple of 8 bytes");
  const std::size_t words = chunk.size() / kWord;
  std::uint64_t sum = 0;
  std::uint64_t key = (position + 1) * kGolden;
  for (std::size_t i = 0; i < words; ++i, key += kWord * kGolden) {
    std::uint64_t word = 0;
    std::memcpy(&word, chunk.data() + i * kWord, kWord);
    sum += mix(word ^ key);
  }
  const auto tail = chunk.subspan(words * kWord);
  if (!tail.empty()) {
    std::uint64_t word = 0;
    std::memcpy(&word, tail.data(), tail.size());
    sum += mix(word ^ (key + (kWord - tail.size()) * kGolden));
  }
  sum_ += sum;
}

std::uint64_t digest(std::span<const std::byte> whole) noexcept {
  Digest result;
  result.add(0, whole);
  return result.value();
}

}  // namespace lockstep
