#include "lockstep/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

namespace lockstep {
namespace {

using Block = std::array<std::uint64_t, 4>;

// The authors' published results; tests/oracle/random_agreement.py compares whole streams with
// numpy.
TEST(Philox, GivesThePublishedResults) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x16554d9eca36314cu, 0xdb20fe9d672d0fdcu,
                                                 0xd7e772cee186176bu, 0x7e68b68aec7ba23bu}));
  constexpr auto ones = ~std::uint64_t{0};
  EXPECT_EQ(
      philox({ones, ones, ones, ones}, {ones, ones}),
      (Block{0x87b092c3013fe90bu, 0x438c3c67be8d0224u, 0x9cc7d7c69cd777b6u, 0xa09caebf594f0ba0u}));
  EXPECT_EQ(
      philox({0x243f6a8885a308d3u, 0x13198a2e03707344u, 0xa4093822299f31d0u, 0x082efa98ec4e6c89u},
             {0x452821e638d01377u, 0xbe5466cf34e90c6cu}),
      (Block{0xa528f45403e61d95u, 0x38c72dbd566e9788u, 0xa5a1610e72fd18b5u, 0x57bd43b5e52b7fe6u}));
}

TEST(RandomStream, IsTheBlocksOfItsCounterInOrder) {
  RandomStream stream({.seed = 7, .purpose = 11}, 13, 17);
  for (std::uint64_t block = 0; block < 3; ++block) {
    for (const auto expected : philox({block, 13, 17, 0}, {7, 11})) EXPECT_EQ(stream(), expected);
  }
}

TEST(RandomStream, EveryPartOfKeyAndCounterGivesAnotherStream) {
  std::set<std::uint64_t> first_draws;
  for (std::uint64_t i = 0; i < 100; ++i) {
    first_draws.insert(RandomStream({i, 1000}, 1000, 1000)());
    first_draws.insert(RandomStream({1000, i}, 1000, 1000)());
    first_draws.insert(RandomStream({1000, 1000}, i, 1000)());
    first_draws.insert(RandomStream({1000, 1000}, 1000, i)());
  }
  EXPECT_EQ(first_draws.size(), 400u);
}

TEST(RandomStream, PurposesAreFixedForever) {
  EXPECT_EQ(random_purpose(""), 0xcbf29ce484222325u);  // FNV-1a's published results
  EXPECT_EQ(random_purpose("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(random_purpose("foobar"), 0x85944171f73967e8u);
}

TEST(RandomStream, UniformStaysInItsHalfOpenRangeAndHasTheRightMoments) {
  RandomStream stream({1, random_purpose("test")}, 0, 0);
  constexpr int draws = 100'000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < draws; ++i) {
    const double x = stream.uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
    squares += x * x;
  }
  // Six standard errors of the mean of x (0.2887) and of x² (0.2981): fails for one seed in 10^8,
  // and this seed is fixed.
  EXPECT_NEAR(sum / draws, 1.0 / 2, 6 * 0.2887 / std::sqrt(draws));
  EXPECT_NEAR(squares / draws, 1.0 / 3, 6 * 0.2981 / std::sqrt(draws));
}

TEST(RandomStream, BelowCoversItsRangeEvenly) {
  RandomStream stream({2, random_purpose("test")}, 0, 0);
  constexpr std::uint64_t bound = 7;
  constexpr int draws = 70'000;
  std::vector<int> counts(bound);
  for (int i = 0; i < draws; ++i) ++counts[stream.below(bound)];
  const double expected = static_cast<double>(draws) / bound;
  for (const int count : counts) EXPECT_NEAR(count, expected, 6 * std::sqrt(expected));
}

TEST(RandomStream, BelowDrawsAgainWhereAPlainMultiplyWouldBeBiased) {
  // With a bound of 3·2^62 a plain multiply gives two numbers out of three twice the weight of the
  // third.
  constexpr std::uint64_t bound = std::uint64_t{3} << 62;
  RandomStream stream({3, random_purpose("test")}, 0, 0);
  constexpr int draws = 60'000;
  std::array<int, 3> by_residue{};
  for (int i = 0; i < draws; ++i) {
    const auto x = stream.below(bound);
    ASSERT_LT(x, bound);
    ++by_residue[x % 3];
  }
  for (const int count : by_residue) EXPECT_NEAR(count, draws / 3.0, 6 * std::sqrt(draws / 3.0));
}

TEST(RandomStream, BelowOneIsAlwaysZero) {
  RandomStream stream({4, 0}, 0, 0);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(stream.below(1), 0u);
}

TEST(RandomStream, WorksWithTheStandardLibrary) {
  static_assert(std::uniform_random_bit_generator<RandomStream>);
}

}  // namespace
}  // namespace lockstep
