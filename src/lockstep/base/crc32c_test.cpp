#include "lockstep/base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

std::uint32_t crc_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc_of("123456789"), 0xE3069283U);
  EXPECT_EQ(crc_of(""), 0U);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62A8AB43U);
}

TEST(Crc32c, TheThirdsAreTheChecksumsOfThreeParts) {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(5000);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t length = 0; length <= bytes.size(); length += length < 200 ? 1 : 397) {
    const auto span = std::span(bytes).first(length);
    const auto third = length / 3 / 8 * 8;
    const auto crcs = crc32c_of_thirds(span);
    EXPECT_EQ(crcs[0], crc32c(span.first(third)));
    EXPECT_EQ(crcs[1], crc32c(span.subspan(third, third)));
    EXPECT_EQ(crcs[2], crc32c(span.subspan(2 * third)));
  }
}

TEST(Crc32c, EveryFlippedBitIsDetected) {
  std::vector<std::byte> bytes(100, std::byte{0x37});
  const auto before = crc32c_of_thirds(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(crc32c_of_thirds(bytes), before) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

}  // namespace
}  // namespace lockstep
