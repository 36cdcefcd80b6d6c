#include "lockstep/data/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace lockstep {
namespace {

Permutation permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch = 0) {
  return {size, {seed, random_purpose("test")}, epoch, 0};
}

std::vector<std::int64_t> all_of(const Permutation& permutation) {
  std::vector<std::int64_t> list(static_cast<std::size_t>(permutation.size()));
  permutation.fill(0, list);
  return list;
}

// The distance of chi-square from its mean in standard deviations: approximately normal for many
// degrees of freedom. Seeds are fixed, so the tests below always give the same number. A distance
// of 5 occurs by chance once in 3 million.
double deviations(double chi_square, double freedom) {
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

TEST(Permutation, HasEveryNumberOnceForEverySizeUpToAThousand) {
  for (std::int64_t size = 1; size <= 1000; ++size) {
    auto list = all_of(permutation(size, 7));
    std::sort(list.begin(), list.end());
    for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(list[static_cast<std::size_t>(i)], i) << size;
  }
}

TEST(Permutation, GivesTheSameOneByOneAndInBulk) {
  for (const std::int64_t size : {1, 2, 3, 31, 32, 33, 1000, 1 << 20, 1'000'000'007}) {
    const auto shuffle = permutation(size, 11);
    std::vector<std::int64_t> bulk(static_cast<std::size_t>(std::min<std::int64_t>(size, 77)));
    shuffle.fill(size - static_cast<std::int64_t>(bulk.size()), bulk);
    for (std::size_t i = 0; i < bulk.size(); ++i) {
      EXPECT_EQ(bulk[i], shuffle(size - static_cast<std::int64_t>(bulk.size() - i))) << size;
    }
  }
}

TEST(Permutation, DrawsEveryPermutationOfFewNumbersEquallyOften) {
  for (const std::int64_t size : {2, 3, 4, 5, 6}) {
    const int orders = static_cast<int>(std::lround(std::tgamma(size + 1)));
    const int draws = orders * 400;
    std::map<std::vector<std::int64_t>, int> seen;
    for (int seed = 0; seed < draws; ++seed) {
      ++seen[all_of(permutation(size, 3, static_cast<std::uint64_t>(seed)))];
    }
    ASSERT_EQ(seen.size(), orders) << "of " << size;
    double chi_square = 0;
    for (const auto& [order, count] : seen) chi_square += std::pow(count - 400.0, 2) / 400;
    EXPECT_LT(std::abs(deviations(chi_square, orders - 1)), 5) << "of " << size;
  }
}

TEST(Permutation, PutsEverySampleEverywhereEquallyOften) {
  for (const std::int64_t size : {2, 3, 7, 8, 15, 16, 17, 33, 64, 65, 100, 127, 128, 129, 255}) {
    const int epochs = static_cast<int>(20 * size);
    std::vector<int> seen(static_cast<std::size_t>(size * size));
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const auto list = all_of(permutation(size, 5, static_cast<std::uint64_t>(epoch)));
      for (std::int64_t i = 0; i < size; ++i) {
        ++seen[static_cast<std::size_t>(i * size + list[static_cast<std::size_t>(i)])];
      }
    }
    double chi_square = 0;
    for (const auto count : seen) chi_square += std::pow(count - 20.0, 2) / 20;
    // Rows and columns have fixed sums.
    EXPECT_LT(std::abs(deviations(chi_square, std::pow(size - 1, 2))), 5) << "of " << size;
  }
}

TEST(Permutation, KeepsNoMoreNeighboursThanAFairShuffle) {
  // In a fair shuffle the next sample is the right-hand neighbour of this one with chance 1 / size.
  // Pooled over all sizes, with a separate seed for each: sizes with equally many bits use the same
  // network.
  for (const std::int64_t distance : {1, -1, 2, -2, 3, 4}) {
    double expected = 0;
    double found = 0;
    for (std::int64_t size = 8; size <= 1000; size += size < 70 ? 1 : 31) {
      for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
        const auto list = all_of(permutation(size, 9 + static_cast<std::uint64_t>(size), epoch));
        for (std::size_t i = 0; i + 1 < list.size(); ++i)
          found += list[i + 1] - list[i] == distance;
      }
      expected +=
          200.0 * static_cast<double>(size - std::abs(distance)) / static_cast<double>(size);
    }
    // Nearly a Poisson count: its variance is its mean.
    EXPECT_LT(std::abs(found - expected) / std::sqrt(expected), 5) << "distance " << distance;
  }
}

TEST(Permutation, HasAsManyFixedPointsAndCyclesAsAFairShuffle) {
  double fixed = 0;
  double cycles = 0;
  double expected_cycles = 0;
  double sizes = 0;
  for (std::int64_t size = 2; size <= 1000; size += size < 70 ? 1 : 31) {
    double harmonic = 0;
    for (std::int64_t i = 1; i <= size; ++i) harmonic += 1.0 / static_cast<double>(i);
    for (std::uint64_t epoch = 0; epoch < 200; ++epoch, ++sizes, expected_cycles += harmonic) {
      const auto list = all_of(permutation(size, 13 + static_cast<std::uint64_t>(size), epoch));
      std::vector<bool> visited(list.size());
      for (std::size_t start = 0; start < list.size(); ++start) {
        fixed += list[start] == static_cast<std::int64_t>(start);
        if (visited[start]) continue;
        ++cycles;
        for (auto at = start; !visited[at]; at = static_cast<std::size_t>(list[at])) {
          visited[at] = true;
        }
      }
    }
  }
  // Means: one fixed point, and the harmonic number of cycles; the variances are below the means.
  EXPECT_LT(std::abs(fixed - sizes) / std::sqrt(sizes), 5);
  EXPECT_LT(std::abs(cycles - expected_cycles) / std::sqrt(expected_cycles), 5);
}

TEST(Permutation, SpreadsATrillionSamplesEvenly) {
  for (const std::int64_t size :
       {1'000'000'000LL, 1'000'000'000'000LL, 9'000'000'000'000'000'000LL}) {
    const auto shuffle = permutation(size, 17);
    std::vector<std::int64_t> some(200'000);
    for (const std::int64_t first : {std::int64_t{0}, size - 200'000}) {
      shuffle.fill(first, some);
      constexpr int bins = 1000;
      std::vector<int> seen(bins);
      std::vector<int> seen_low(bins);
      double rising = 0;
      for (std::size_t i = 0; i < some.size(); ++i) {
        ASSERT_GE(some[i], 0);
        ASSERT_LT(some[i], size);
        ++seen[static_cast<std::size_t>(static_cast<double>(some[i]) / static_cast<double>(size) *
                                        bins)];
        ++seen_low[static_cast<std::size_t>(some[i] % bins)];
        if (i > 0) rising += some[i] > some[i - 1];
      }
      for (const auto& histogram : {seen, seen_low}) {
        double chi_square = 0;
        for (const auto count : histogram) chi_square += std::pow(count - 200.0, 2) / 200;
        EXPECT_LT(std::abs(deviations(chi_square, bins - 1)), 5) << size << " from " << first;
      }
      // Ascents of a random sequence: mean (m − 1) / 2, variance (m + 1) / 12.
      EXPECT_LT(std::abs(rising - 99'999.5) / std::sqrt(200'001 / 12.0), 5);
      std::sort(some.begin(), some.end());
      EXPECT_EQ(std::adjacent_find(some.begin(), some.end()), some.end());
    }
  }
}

TEST(Permutation, OfAnotherSeedOrEpochIsUnrelated) {
  constexpr std::int64_t size = 100'000;
  const auto base = all_of(permutation(size, 1, 1));
  for (const auto& other :
       {permutation(size, 1, 2), permutation(size, 2, 1), permutation(size, 0, 1)}) {
    const auto list = all_of(other);
    int same = 0;
    for (std::size_t i = 0; i < base.size(); ++i) same += base[i] == list[i];
    EXPECT_LE(same, 8);  // about one is expected; more than 8 happens once in a million
  }
}

TEST(Permutation, NeverChanges) {
  // Fixed values: a checkpoint of an earlier version must find the same samples.
  std::vector<std::int64_t> few(10);
  permutation(10, 42).fill(0, few);
  EXPECT_EQ(few, (std::vector<std::int64_t>{7, 0, 8, 5, 2, 1, 9, 6, 4, 3}));
  EXPECT_EQ(permutation(1'000'000'007, 42)(123'456'789), 41'511'346);
}

}  // namespace
}  // namespace lockstep
