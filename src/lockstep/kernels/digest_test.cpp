#include "lockstep/kernels/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "lockstep/base/random.h"

namespace lockstep {
namespace {

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  RandomStream stream({seed, random_purpose("digest test")}, 0, 0);
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(stream());
  return bytes;
}

// The definition in digest.h, word by word, independent of digest.cpp.
std::uint64_t digest_by_definition(const std::vector<std::byte>& bytes) {
  std::uint64_t sum = 0;
  for (std::size_t p = 0; p < bytes.size(); p += 8) {
    const std::size_t n = std::min<std::size_t>(8, bytes.size() - p);
    std::uint64_t x = 0;
    for (std::size_t i = 0; i < n; ++i) {
      x |= std::to_integer<std::uint64_t>(bytes[p + i]) << (8 * i);
    }
    x ^= (p + 9 - n) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    sum += x ^ (x >> 31);
  }
  return sum;
}

TEST(Digest, FollowsItsDefinitionAtEveryLength) {
  for (std::size_t size = 0; size < 200; ++size) {
    const auto bytes = random_bytes(size, size);
    ASSERT_EQ(digest(bytes), digest_by_definition(bytes)) << size << " bytes";
  }
}

TEST(Digest, DoesNotChangeFromOneVersionToTheNext) {
  std::vector<std::byte> bytes(20);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(digest(bytes), 0x2680133796c43b21u);
}

TEST(Digest, DoesNotDependOnThePartitionIntoChunksNorOnTheirOrder) {
  const auto bytes = random_bytes(10'001, 1);
  const auto whole = digest(bytes);
  RandomStream random({2, random_purpose("digest test")}, 0, 0);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::pair<std::size_t, std::size_t>> chunks;
    for (std::size_t begin = 0; begin < bytes.size();) {
      const std::size_t size =
          std::min<std::size_t>(8 * (1 + random.below(100)), bytes.size() - begin);
      chunks.emplace_back(begin, size);
      begin += size;
    }
    std::shuffle(chunks.begin(), chunks.end(), random);
    Digest left;
    Digest right;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const auto [begin, size] = chunks[i];
      (i % 2 == 0 ? left : right).add(begin, std::span(bytes).subspan(begin, size));
    }
    ASSERT_EQ((left += right).value(), whole);
  }
}

TEST(Digest, DetectsEverySingleBitFlip) {
  auto bytes = random_bytes(1'003, 3);
  std::set<std::uint64_t> seen{digest(bytes)};
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto mask = std::byte{1} << (bit % 8);
    bytes[bit / 8] ^= mask;
    ASSERT_TRUE(seen.insert(digest(bytes)).second) << "bit " << bit;
    bytes[bit / 8] ^= mask;
  }
}

TEST(Digest, DetectsTwoSignFlipsThatCancelInASum) {
  std::vector<float> values(256, 1.5f);
  const auto before = digest(std::as_bytes(std::span(values)));
  for (std::size_t i = 1; i < values.size(); ++i) {
    values[0] = values[i] = -1.5f;
    ASSERT_NE(digest(std::as_bytes(std::span(values))), before) << "elements 0 and " << i;
    values[0] = values[i] = 1.5f;
  }
}

TEST(Digest, DetectsSwappedWords) {
  auto bytes = random_bytes(64, 4);
  const auto before = digest(bytes);
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 40);
  EXPECT_NE(digest(bytes), before);
}

TEST(Digest, DistinguishesZerosOfDifferentLength) {
  std::set<std::uint64_t> seen;
  for (std::size_t size = 0; size < 100; ++size) {
    EXPECT_TRUE(seen.insert(digest(std::vector<std::byte>(size))).second) << size << " zero bytes";
  }
}

}  // namespace
}  // namespace lockstep
