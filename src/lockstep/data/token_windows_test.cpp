#include "lockstep/data/token_windows.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<std::uint16_t> counting(std::size_t count) {
  std::vector<std::uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{60'000});
  return tokens;
}

void expect_windows(const Tokens& tokens, std::int64_t window, std::int64_t stride) {
  const TokenWindows data(tokens, {.window = window, .stride = stride});
  const auto each = stride == 0 ? window : stride;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(data.size()));
  std::iota(indices.rbegin(), indices.rend(), 0);
  const RowsBuffer buffer(data.layout(), data.size());
  const auto rows = buffer.rows(data.size());
  data.read(indices, rows);
  for (std::int64_t row = 0; row < data.size(); ++row) {
    const auto start = indices[static_cast<std::size_t>(row)] * each;
    for (std::int64_t k = 0; k < window; ++k) {
      ASSERT_EQ(rows.row<std::int64_t>(0, row)[static_cast<std::size_t>(k)], 60'000 + start + k);
      ASSERT_EQ(rows.row<std::int64_t>(1, row)[static_cast<std::size_t>(k)], 60'001 + start + k);
    }
  }
  // One more window would need a token after the end.
  EXPECT_GT(data.size() * each + window + 1, tokens.count());
}

TEST(TokenWindows, GiveEachWindowAndTheSameShiftedByOne) {
  for (const std::size_t count : {9, 10, 100, 1001}) {
    for (const std::int64_t window : {1, 3, 8}) {
      for (const std::int64_t stride : {0, 1, 5}) {
        expect_windows(tokens_in_memory(counting(count)), window, stride);
      }
    }
  }
}

TEST(TokenWindows, ReadTokensOf32Bits) {
  std::vector<std::uint32_t> wide(300);
  std::iota(wide.begin(), wide.end(), 60'000U);
  expect_windows({.values = std::span<const std::uint32_t>(wide)}, 16, 0);
}

TEST(TokenWindows, HaveAnIdThatFollowsTokensWindowAndStride) {
  const auto id = [](std::size_t count, TokenWindowsOptions options) {
    return TokenWindows(tokens_in_memory(counting(count)), options).id();
  };
  EXPECT_EQ(id(100, {.window = 8}), id(100, {.window = 8, .stride = 8}));
  EXPECT_NE(id(100, {.window = 8}), id(101, {.window = 8}));
  EXPECT_NE(id(100, {.window = 8}), id(100, {.window = 4}));
  EXPECT_NE(id(100, {.window = 8}), id(100, {.window = 8, .stride = 4}));
}

TEST(TokenWindows, RefuseTooFewTokens) {
  EXPECT_THROW(TokenWindows(tokens_in_memory(counting(8)), {.window = 8}), UsageError);
  EXPECT_THROW(TokenWindows(tokens_in_memory(counting(8)), {.window = 0}), UsageError);
  EXPECT_THROW(TokenWindows(tokens_in_memory(counting(8)), {.window = 2, .stride = -1}),
               UsageError);
  EXPECT_EQ(TokenWindows(tokens_in_memory(counting(9)), {.window = 8}).size(), 1);
}

}  // namespace
}  // namespace lockstep
