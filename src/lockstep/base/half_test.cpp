#include "lockstep/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "lockstep/base/random.h"
#include "lockstep/base/test_half_internal.h"

namespace lockstep {
namespace {

struct Format {
  oracle::HalfFormat oracle;
  float (*widen)(std::uint32_t) noexcept;
  std::uint32_t (*narrow)(float) noexcept;
};
const Format kFormats[] = {
    {oracle::kFloat16, &widen_float16, &narrow_to_float16},
    {oracle::kBFloat16, &widen_bfloat16, &narrow_to_bfloat16},
};

void expect_narrow(const Format& format, float value) {
  const auto found = format.narrow(value);
  if (std::isnan(value)) {
    EXPECT_TRUE(std::isnan(format.oracle.decode(static_cast<std::uint16_t>(found))));
    EXPECT_EQ(found >> 15, std::signbit(value) ? 1U : 0U);
    return;
  }
  EXPECT_EQ(found, format.oracle.encode(value)) << std::hexfloat << value;
}

TEST(Half, EveryValueWidensExactlyAndComesBack) {
  for (const auto& format : kFormats) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double expected = format.oracle.decode(static_cast<std::uint16_t>(bits));
      const float widened = format.widen(bits);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(widened)) << bits;
        continue;
      }
      EXPECT_EQ(std::bit_cast<std::uint32_t>(widened),
                std::bit_cast<std::uint32_t>(static_cast<float>(expected)))
          << bits;
      EXPECT_EQ(format.narrow(widened), bits);
    }
  }
}

// Between every value and the next: the midpoint, which is a tie, and its two neighbors.
TEST(Half, TiesGoToTheEvenNeighbourAndEverythingElseToTheNearest) {
  for (const auto& format : kFormats) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double low = format.oracle.decode(static_cast<std::uint16_t>(bits));
      const double high = format.oracle.decode(static_cast<std::uint16_t>(bits + 1));
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const auto middle = static_cast<float>((low + high) / 2);
      expect_narrow(format, middle);
      expect_narrow(format, std::nextafter(middle, 0.0F));
      expect_narrow(format, std::nextafter(middle, 2 * middle));
    }
  }
}

TEST(Half, TheLargestRoundsToInfinityAtHalfAStepAboveIt) {
  const auto narrow = narrow_to_float16;
  EXPECT_EQ(narrow(65504.0F), 0x7BFFU);
  EXPECT_EQ(narrow(std::nextafter(65520.0F, 0.0F)), 0x7BFFU);
  EXPECT_EQ(narrow(65520.0F), 0x7C00U);
  EXPECT_EQ(narrow(-1e30F), 0xFC00U);
  EXPECT_EQ((narrow_to_bfloat16(3.4e38F)), 0x7F80U);
}

TEST(Half, NoNaNBecomesInfinity) {
  for (const std::uint32_t bits : {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU, 0xFF800001U}) {
    for (const auto& format : kFormats) expect_narrow(format, std::bit_cast<float>(bits));
  }
}

TEST(Half, RandomFloatsNarrowAsTheOracleSays) {
  RandomStream random({3, random_purpose("half test")}, 0, 0);
  for (int i = 0; i < 200'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    for (const auto& format : kFormats) expect_narrow(format, value);
  }
}

}  // namespace
}  // namespace lockstep
