// The loops of compressed gradients against their definitions, element by element and without
// vectors, on every instruction set: bit-identical.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/kernels/convert_pass.h"
#include "lockstep/kernels/int8_blocks.h"
#include "lockstep/kernels/low_rank_pass.h"

namespace lockstep {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Magnitudes from 2^-20 to 2^20, so that blocks have very different scales.
std::vector<float> draw(std::size_t count, std::uint64_t seed) {
  RandomStream stream({seed, random_purpose("compression loops test")}, 0, 0);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto unit = static_cast<float>(stream() >> 40) * 0x1p-23F - 1;
    values[i] = std::ldexp(unit, static_cast<int>(i / kInt8Block * 7 % 41) - 20);
  }
  return values;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const auto value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

struct Encoded {
  std::vector<float> residual;
  std::vector<std::byte> bytes;
};

Encoded encode(const std::vector<float>& values, const std::vector<float>& error,
               InstructionSet set = best_instruction_set()) {
  Encoded result{std::vector<float>(values.size()),
                 std::vector<std::byte>(int8_bytes(values.size()))};
  int8_encode_pass(values, error, result.residual, Int8Blocks::in(result.bytes, values.size()),
                   set);
  return result;
}

std::vector<float> decode(std::vector<std::byte> bytes, std::size_t count,
                          InstructionSet set = best_instruction_set()) {
  std::vector<float> values(count);
  int8_decode_pass(Int8Blocks::in(bytes, count), values, set);
  return values;
}

// The definition of the header, with std::nearbyint, which rounds to nearest even.
[[gnu::optimize("no-tree-vectorize")]] Encoded encode_by_definition(
    const std::vector<float>& values, const std::vector<float>& error) {
  const auto blocks = int8_num_blocks(values.size());
  Encoded result{{}, std::vector<std::byte>(int8_bytes(values.size()))};
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto end = std::min(values.size(), (block + 1) * kInt8Block);
    float largest = 0;
    for (auto i = block * kInt8Block; i < end; ++i) {
      largest = std::max(largest, std::abs(values[i] + (error.empty() ? 0.0F : error[i])));
    }
    const bool small = largest < 0x1p-100F;
    const float scale = small ? 0 : largest / 127;
    const float inverse = small ? 0 : 127 / largest;
    std::memcpy(result.bytes.data() + block * sizeof(float), &scale, sizeof(float));
    for (auto i = block * kInt8Block; i < end; ++i) {
      const float value = error.empty() ? values[i] : values[i] + error[i];
      const float integer = std::nearbyint(value * inverse);
      result.bytes[blocks * sizeof(float) + i] =
          static_cast<std::byte>(static_cast<std::int8_t>(integer));
      result.residual.push_back(value - integer * scale);
    }
  }
  return result;
}

TEST(Int8Blocks, EncodeGivesTheBitsOfItsDefinitionForEveryLength) {
  for (const std::size_t count : {0UL, 1UL, 255UL, 256UL, 257UL, 511UL, 10'240UL, 10'477UL}) {
    const auto values = draw(count, 1);
    for (const auto& error : {std::vector<float>(), draw(count, 2)}) {
      const auto expected = encode_by_definition(values, error);
      for (const auto set : instruction_sets()) {
        const auto encoded = encode(values, error, set);
        EXPECT_EQ(encoded.bytes, expected.bytes) << to_string(set) << " " << count;
        EXPECT_EQ(bits_of(encoded.residual), bits_of(expected.residual))
            << to_string(set) << " " << count;
      }
    }
  }
}

TEST(Int8Blocks, TiesAreRoundedToEvenAndTheLargestMagnitudeIsExact) {
  // A scale of 2: 127 × 2 is the largest value.
  std::vector<float> values{254, -254, 1, 3, 5, -1, -3, -5, 2, -7};
  const auto encoded = encode(values, {});
  EXPECT_EQ(decode(encoded.bytes, values.size()),
            (std::vector<float>{254, -254, 0, 4, 4, -0.0F, -4, -4, 2, -8}));
}

TEST(Int8Blocks, DecodedValuesAndResidualAddUpToTheValues) {
  const auto values = draw(10'477, 3);
  for (const auto set : instruction_sets()) {
    const auto encoded = encode(values, {}, set);
    const auto decoded = decode(encoded.bytes, values.size(), set);
    for (std::size_t block = 0; block < int8_num_blocks(values.size()); ++block) {
      const auto end = std::min(values.size(), (block + 1) * kInt8Block);
      float largest = 0;
      for (auto i = block * kInt8Block; i < end; ++i) {
        largest = std::max(largest, std::abs(values[i]));
      }
      for (auto i = block * kInt8Block; i < end; ++i) {
        // Half a step, and the rounding of 127 / largest and of the product.
        EXPECT_LE(std::abs(values[i] - decoded[i]), largest / 127 * 0.50002F) << i;
        EXPECT_EQ(encoded.residual[i], values[i] - decoded[i]) << i;
      }
    }
  }
}

TEST(Int8Blocks, EveryIntegerIsDecodedAsItsProductWithTheScale) {
  for (const float scale : {0.0F, 0x1p-107F, 1e-30F, 0.1F, 1.0F, 3.3e5F, 0x1.fffffep120F, kNan}) {
    std::vector<std::byte> bytes(int8_bytes(kInt8Block));
    const auto encoded = Int8Blocks::in(bytes, kInt8Block);
    encoded.scales[0] = scale;
    std::vector<float> expected;
    for (int i = 0; i < static_cast<int>(kInt8Block); ++i) {
      const int integer = i - 128;
      encoded.integers[i] = static_cast<std::int8_t>(integer);
      expected.push_back(static_cast<float>(integer) * scale);
    }
    for (const auto set : instruction_sets()) {
      EXPECT_EQ(bits_of(decode(bytes, kInt8Block, set)), bits_of(expected))
          << to_string(set) << " " << scale;
    }
  }
}

TEST(Int8Blocks, PartsGiveTheBitsOfTheWhole) {
  const auto values = draw(3000, 8);
  const auto error = draw(3000, 9);
  const auto expected = encode(values, error);
  Encoded parts{std::vector<float>(3000), std::vector<std::byte>(int8_bytes(3000))};
  std::vector<float> decoded(3000);
  const auto whole = Int8Blocks::in(parts.bytes, 3000);
  for (const auto& [begin, end] : {std::pair{0UL, 512UL}, {512UL, 2304UL}, {2304UL, 3000UL}}) {
    const auto part = [begin = begin, length = end - begin](auto& all) {
      return std::span(all).subspan(begin, length);
    };
    int8_encode_pass(part(values), part(error), part(parts.residual), whole.from(begin));
    int8_decode_pass(whole.from(begin), part(decoded));
  }
  EXPECT_EQ(parts.bytes, expected.bytes);
  EXPECT_EQ(parts.residual, expected.residual);
  EXPECT_EQ(decoded, decode(expected.bytes, 3000));
}

TEST(Int8Blocks, ResidualMayReplaceTheErrorOrTheValues) {
  const auto values = draw(1000, 4);
  const auto error = draw(1000, 5);
  const auto expected = encode(values, error);
  auto in_error = error;
  auto in_values = values;
  std::vector<std::byte> bytes(int8_bytes(1000));
  int8_encode_pass(values, in_error, in_error, Int8Blocks::in(bytes, 1000));
  EXPECT_EQ(bytes, expected.bytes);
  EXPECT_EQ(in_error, expected.residual);
  int8_encode_pass(in_values, error, in_values, Int8Blocks::in(bytes, 1000));
  EXPECT_EQ(bytes, expected.bytes);
  EXPECT_EQ(in_values, expected.residual);
}

TEST(Int8Blocks, BlocksWithANonFiniteValueAreNanAndTheOthersAreNot) {
  for (const auto set : instruction_sets()) {
    for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      for (const std::size_t at : {256UL, 400UL, 511UL}) {
        auto values = draw(768, 6);
        values[at] = bad;
        const auto encoded = encode(values, {}, set);
        const auto decoded = decode(encoded.bytes, values.size(), set);
        const auto is_nan = [](float value) { return std::isnan(value); };
        EXPECT_TRUE(std::all_of(decoded.begin() + 256, decoded.begin() + 512, is_nan));
        EXPECT_TRUE(std::none_of(decoded.begin(), decoded.begin() + 256, is_nan));
        EXPECT_TRUE(std::none_of(decoded.begin() + 512, decoded.end(), is_nan));
        EXPECT_EQ(encoded.bytes, encode(values, {}, InstructionSet::baseline).bytes);
      }
    }
  }
}

TEST(Int8Blocks, TinyBlocksAreTheirResidual) {
  std::vector<float> values(300, 0x1p-120F);
  values[7] = -0x1p-149F;
  for (const auto set : instruction_sets()) {
    const auto encoded = encode(values, {}, set);
    EXPECT_EQ(encoded.residual, values);
    EXPECT_EQ(decode(encoded.bytes, 300, set), std::vector<float>(300, 0));
  }
}

// The sum in the order of the tree: (0 + 1) + 2 for three ranks, and so on.
float tree_sum(const std::vector<std::vector<float>>& terms, std::size_t begin, std::size_t end,
               std::size_t i) {
  if (end - begin == 1) return terms[begin][i];
  const auto middle = begin + std::bit_floor(end - begin - 1);
  return tree_sum(terms, begin, middle, i) + tree_sum(terms, middle, end, i);
}

TEST(Int8Blocks, SumsAreInTheOrderOfTheTreeAndDividedOnce) {
  constexpr std::size_t kCount = 1000;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int own = 0; own < ranks; own += 2) {
      std::vector<std::vector<std::byte>> encoded;
      std::vector<std::vector<float>> decoded;
      for (int rank = 0; rank < ranks; ++rank) {
        encoded.push_back(encode(draw(kCount, 10 + static_cast<std::uint64_t>(rank)), {}).bytes);
        decoded.push_back(decode(encoded.back(), kCount));
      }
      auto& exact = decoded[static_cast<std::size_t>(own)];
      exact = draw(kCount, 30);
      std::vector<float> expected;
      for (std::size_t i = 0; i < kCount; ++i) {
        expected.push_back(tree_sum(decoded, 0, decoded.size(), i) / 3.0F);
      }
      std::vector<Int8Term> terms;
      for (auto& bytes : encoded) terms.push_back({.encoded = Int8Blocks::in(bytes, kCount)});
      terms[static_cast<std::size_t>(own)] = {.exact = exact.data()};
      for (const auto set : instruction_sets()) {
        std::vector<float> result(kCount);
        int8_sum_pass(TreePlan::over_ranks(ranks), terms, 3, result, set);
        EXPECT_EQ(bits_of(result), bits_of(expected)) << ranks << " " << to_string(set);
      }
    }
  }
}

// All values of the upper 16 bits, with lower halves at and around a tie.
std::vector<float> all_upper_halves() {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000U; ++upper) {
    for (const std::uint32_t lower : {0U, 1U, 0x1000U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return values;
}

template <typename Stored>
void expect_conversions() {
  auto values = all_upper_halves();
  // Blocks without a non-finite value, and every length of the remainder's part.
  const auto finite = draw(4096 + 131, 7);
  values.insert(values.begin(), finite.begin(), finite.end());
  std::vector<Stored> expected;
  for (const auto value : values) expected.push_back(narrowed<Stored>(value));
  std::vector<Stored> fastest(values.size());
  narrow_pass<Stored>(values, fastest);
  EXPECT_EQ(fastest, expected);
  for (const auto set : instruction_sets()) {
    std::vector<Stored> narrow(values.size());
    narrow_pass<Stored>(values, narrow, set);
    EXPECT_EQ(narrow, expected) << to_string(set);
    std::vector<float> wide(values.size());
    widen_pass<Stored>(narrow, wide, set);
    std::vector<float> widened_each;
    for (const auto value : expected) widened_each.push_back(widened(value));
    EXPECT_EQ(bits_of(wide), bits_of(widened_each)) << to_string(set);
  }
}

TEST(Conversions, GiveTheBitsOfOneElementAtATime) {
  expect_conversions<BFloat16>();
  expect_conversions<Float16>();
}

template <typename T>
void expect_low_rank() {
  for (const std::size_t rank : {1UL, 2UL, 3UL, 5UL}) {
    constexpr std::size_t kRows = 13;
    constexpr std::size_t kColumns = 1037;
    const auto draw_as = [](std::size_t count, std::uint64_t seed) {
      const auto values = draw(count, seed);
      return std::vector<T>(values.begin(), values.end());
    };
    const auto left = draw_as(rank * kRows, 20);
    const auto right = draw_as(rank * kColumns, 21);
    const auto before = draw_as(kRows * kColumns, 22);
    constexpr T kWeight = 3;
    for (const auto set : instruction_sets()) {
      std::vector<T> result(kRows * kColumns);
      auto residual = before;
      low_rank_pass<T>(left, right, rank, kWeight, result, residual, set);
      bool same = true;
      for (std::size_t i = 0; i < kRows; ++i) {
        for (std::size_t j = 0; j < kColumns; ++j) {
          T sum = left[i] * right[j];
          for (std::size_t k = 1; k < rank; ++k) {
            const T product = left[k * kRows + i] * right[k * kColumns + j];
            sum = sum + product;
          }
          const auto at = i * kColumns + j;
          const T lost = kWeight * sum;
          same = same && result[at] == sum && residual[at] == before[at] - lost;
        }
      }
      EXPECT_TRUE(same) << to_string(set) << " rank " << rank;
    }
  }
}

TEST(LowRank, ProductsAreAddedInOrder) {
  expect_low_rank<float>();
  expect_low_rank<double>();
}

}  // namespace
}  // namespace lockstep
