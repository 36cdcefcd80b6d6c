#include "lockstep/flat/walk.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/flat/parallel.h"
#include "lockstep/kernels/noted_loops.h"

namespace lockstep {
namespace {

class WalkOf : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, WalkOf,
                         ::testing::Values(at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                           at::kComplexFloat));

TEST_P(WalkOf, CopiesAndAddsAsTorchDoes) {
  torch::manual_seed(1);
  for (const std::int64_t count : {0, 1, 15, 16, 1000, 5000}) {
    const auto a = torch::randn({count}).to(GetParam());
    const auto b = torch::randn({count}).to(GetParam());
    auto to = torch::zeros({count}, GetParam());
    EXPECT_FALSE(copy_noting_non_finite(to, a));
    EXPECT_TRUE(torch::equal(to, a));
    EXPECT_FALSE(add_noting_non_finite(to, b));
    EXPECT_TRUE(torch::equal(to, a + b));
  }
}

TEST_P(WalkOf, CopiesSpansOfEveryLengthAndAlignment) {
  torch::manual_seed(1);
  // Into memory large enough to be written past the caches, unless these are very large, and into
  // smaller memory; aligned for that and not.
  const auto most = static_cast<std::int64_t>(std::min<std::size_t>(stream_bytes(), 16U << 20) /
                                              c10::elementSize(GetParam()));
  const auto all = torch::randn({most + 100}).to(GetParam());
  for (const std::int64_t count : {1L, 4L, 63L, 64L, 129L, most - 1, most, most + 37}) {
    for (const std::int64_t offset : {0L, 1L}) {
      for (const std::int64_t whole : {count + 40, most + 100}) {
        auto memory = torch::zeros({whole}, GetParam());
        const auto to = memory.narrow(0, offset, count);
        const auto from = all.narrow(0, 3, count);
        EXPECT_FALSE(copy_noting_non_finite(to, from));
        EXPECT_TRUE(to.equal(from)) << count << " at " << offset << " of " << whole;
        EXPECT_EQ(torch::count_nonzero(memory.narrow(0, offset + count, 30)).item<std::int64_t>(),
                  0);
      }
    }
  }
  auto to = torch::zeros({most + 37}, GetParam());
  for (const std::int64_t bad : {0L, most / 2 + 1, most - 1, most + 36}) {
    auto from = all.narrow(0, 0, most + 37).clone();
    from[bad] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(copy_noting_non_finite(to, from)) << bad;
  }
}

TEST_P(WalkOf, AcceptsTheLargestFiniteValues) {
  for (const double sign : {1.0, -1.0}) {
    auto from = torch::zeros({200}, GetParam());
    const bool is_complex = from.is_complex();
    auto parts = is_complex ? torch::view_as_real(from) : from;
    if (parts.scalar_type() == at::kHalf) {
      parts.fill_(sign * 65504);
    } else if (parts.scalar_type() == at::kBFloat16) {
      parts.fill_(sign * 3.3895313892515355e38);
    } else if (parts.scalar_type() == at::kFloat) {
      parts.fill_(sign * std::numeric_limits<float>::max());
    } else {
      parts.fill_(sign * std::numeric_limits<double>::max());
    }
    EXPECT_FALSE(has_non_finite(from));
    auto to = torch::zeros({200}, GetParam());
    EXPECT_FALSE(copy_noting_non_finite(to, from));
  }
}

TEST_P(WalkOf, FindsNonFiniteValuesAtEveryPosition) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    for (const std::int64_t at : {0, 7, 1023, 1024, 2998, 2999}) {
      auto from = torch::zeros({3000}, GetParam());
      from[at] = bad;
      auto to = torch::ones({3000}, GetParam());
      EXPECT_TRUE(has_non_finite(from));
      EXPECT_FALSE(has_non_finite(to));
      EXPECT_TRUE(add_noting_non_finite(to, from));
      EXPECT_TRUE(copy_noting_non_finite(to, from));
      EXPECT_FALSE(copy_noting_non_finite(to, torch::ones({3000}, GetParam())));
    }
  }
}

TEST_P(WalkOf, TakesTensorsOfOtherStridesAndDtypes) {
  const auto from = torch::randn({4, 5}, at::kFloat).to(GetParam());
  auto to = torch::zeros({5, 4}, GetParam()).t();
  (void)copy_noting_non_finite(to, from);
  EXPECT_TRUE(torch::equal(to, from));
  (void)copy_noting_non_finite(to, from[0][0].expand({4, 5}));
  EXPECT_TRUE(torch::equal(to, from[0][0].expand({4, 5})));
}

TEST_P(WalkOf, FindsTheNormInDouble) {
  torch::manual_seed(2);
  for (const std::int64_t count : {0, 1, 31, 4097}) {
    const auto flat = torch::randn({count}).to(GetParam());
    const auto wide = (flat.is_complex() ? torch::view_as_real(flat) : flat).to(at::kDouble);
    // The same squares in another order: sums of at most 10,000 doubles of about 1.
    EXPECT_NEAR(squared_norm(flat), wide.square().sum().item<double>(), 1e-6);
  }
}

TEST_P(WalkOf, ScalesAsTorchDoes) {
  auto flat = torch::randn({777}).to(GetParam());
  const auto expected = (flat * 0.25).to(GetParam());
  scale(flat, 0.25);
  EXPECT_TRUE(torch::equal(flat, expected));
}

TEST_P(WalkOf, ScalesAndReportsNonFiniteValues) {
  auto flat = torch::randn({777}).to(GetParam());
  const auto expected = (flat * 0.25).to(GetParam());
  EXPECT_FALSE(scale_noting_non_finite(flat, 0.25));
  EXPECT_TRUE(torch::equal(flat, expected));
  flat[776] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(scale_noting_non_finite(flat, 0.25));
}

// The results of the walks for `count` elements on `threads` threads.
std::vector<double> results_on(int threads, std::int64_t count, at::ScalarType dtype) {
  at::set_num_threads(threads);
  torch::manual_seed(3);
  const auto from = torch::randn({count}).to(dtype);
  auto to = torch::randn({count}).to(dtype);
  EXPECT_FALSE(add_noting_non_finite(to, from));
  EXPECT_FALSE(scale_noting_non_finite(to, 0.3));
  const auto norm = squared_norm(to);
  const auto digest = digest_of(to);
  EXPECT_FALSE(copy_noting_non_finite(to, from));
  EXPECT_TRUE(to.equal(from));
  to[count - 1] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(has_non_finite(to));
  return {norm, static_cast<double>(digest >> 32), static_cast<double>(digest & 0xFFFFFFFFU)};
}

TEST_P(WalkOf, IsBitIdenticalWithAnyNumberOfThreads) {
  const auto threads_before = at::get_num_threads();
  for (const std::int64_t count : {40'000, 333'337}) {
    const auto alone = results_on(1, count, GetParam());
    for (const int threads : {2, 3, 4}) {
      EXPECT_EQ(results_on(threads, count, GetParam()), alone)
          << count << " elements on " << threads << " threads";
    }
  }
  at::set_num_threads(threads_before);
}

TEST(InParts, CoversEverythingOnceInWholeUnits) {
  const auto threads_before = at::get_num_threads();
  at::set_num_threads(3);
  for (const std::size_t count : {0UL, 1UL, 100'000UL, 1'000'003UL}) {
    std::mutex mutex;
    std::vector<std::pair<std::size_t, std::size_t>> parts;
    in_parts(count, 64, [&](std::size_t begin, std::size_t end) {
      const std::lock_guard lock(mutex);
      parts.emplace_back(begin, end);
    });
    std::sort(parts.begin(), parts.end());
    std::size_t covered = 0;
    for (const auto& [begin, end] : parts) {
      EXPECT_EQ(begin, covered);
      EXPECT_EQ(begin % 64, 0U);
      covered = end;
    }
    EXPECT_EQ(covered, count);
    EXPECT_EQ(parts.size(), count < 65'536 ? 1U : 3U);
  }
  at::set_num_threads(threads_before);
}

TEST(Walk, MakesSparseGradientsDense) {
  const auto indices = torch::tensor({{1, 1, 4}}, at::kLong);
  const auto values = torch::ones({3, 2});
  const auto sparse = torch::sparse_coo_tensor(indices, values, {6, 2});
  auto to = torch::full({6, 2}, 9.0);
  (void)copy_noting_non_finite(to, sparse);
  EXPECT_TRUE(torch::equal(to, sparse.to_dense()));
}

TEST(Walk, DigestsDifferByOneBit) {
  auto flat = torch::zeros({100});
  const auto before = digest_of(flat);
  flat[50] = -0.0F;
  EXPECT_NE(digest_of(flat), before);
}

TEST(Walk, RefusesIntegers) {
  EXPECT_THROW((void)squared_norm(torch::zeros({3}, at::kInt)), UsageError);
}

}  // namespace
}  // namespace lockstep
