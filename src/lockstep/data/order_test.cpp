#include "lockstep/data/order.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<std::int64_t> all_of(const EpochOrder& order) {
  std::vector<std::int64_t> list(static_cast<std::size_t>(order.size()));
  order.fill(0, list);
  return list;
}

void expect_every_sample_once(std::vector<std::int64_t> list) {
  std::sort(list.begin(), list.end());
  for (std::size_t i = 0; i < list.size(); ++i) ASSERT_EQ(list[i], static_cast<std::int64_t>(i));
}

TEST(Order, TorchIsRandpermSeededWithSeedPlusEpoch) {
  for (const std::int64_t size : {1, 2, 3, 10, 1000, 65'537}) {
    for (const std::uint64_t seed : {0ULL, 1ULL, 42ULL, 0xffffffffULL, 0x1'0000'0001ULL}) {
      const Order order(size, {.kind = OrderKind::torch, .seed = seed});
      for (const std::int64_t epoch : {0, 1, 7}) {
        auto generator = at::detail::createCPUGenerator(seed + static_cast<std::uint64_t>(epoch));
        const auto theirs = at::randperm(size, generator, at::TensorOptions().dtype(at::kLong));
        const auto* begin = theirs.const_data_ptr<std::int64_t>();
        ASSERT_EQ(all_of(order.epoch(epoch)), std::vector<std::int64_t>(begin, begin + size));
      }
    }
  }
}

TEST(Order, HasEverySampleOnceForEachKind) {
  for (const std::int64_t size : {1, 2, 10, 97, 1000, 4096}) {
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      for (const auto kind : {OrderKind::native, OrderKind::torch, OrderKind::sequential}) {
        expect_every_sample_once(all_of(Order(size, {.kind = kind, .seed = 3}).epoch(epoch)));
      }
      for (const std::int64_t block : {1, 2, 7, 10, 64}) {
        for (const std::int64_t window_blocks : {2, 3, 100}) {
          if (block > size) continue;
          const Order order(size, {.seed = 3, .block = block, .window_blocks = window_blocks});
          expect_every_sample_once(all_of(order.epoch(epoch)));
        }
      }
    }
  }
}

TEST(Order, GivesAnyPositionAloneAndInBulk) {
  for (const auto& options : {OrderOptions{.seed = 5}, OrderOptions{.kind = OrderKind::torch},
                              OrderOptions{.seed = 5, .block = 10, .window_blocks = 4},
                              OrderOptions{.kind = OrderKind::sequential}}) {
    const Order order(1003, options);
    const auto list = all_of(order.epoch(2));
    for (std::int64_t position = 0; position < 1003; position += 59) {
      EXPECT_EQ(order(2, position), list[static_cast<std::size_t>(position)]);
    }
    std::vector<std::int64_t> middle(300);
    order.epoch(2).fill(555, middle);
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(), list.begin() + 555));
  }
}

TEST(Order, ChangesWithEpochAndSeedUnlessSequential) {
  const auto native = [](std::uint64_t seed, std::int64_t epoch) {
    return all_of(Order(500, {.seed = seed}).epoch(epoch));
  };
  EXPECT_EQ(native(1, 0), native(1, 0));
  EXPECT_NE(native(1, 0), native(1, 1));
  EXPECT_NE(native(1, 0), native(2, 0));
  const Order sequential(500, {.kind = OrderKind::sequential});
  EXPECT_EQ(all_of(sequential.epoch(0)), all_of(sequential.epoch(1)));
}

TEST(Order, InBlocksReadsOneWindowOfTheDataAtATime) {
  constexpr std::int64_t block = 100;
  constexpr std::int64_t window_blocks = 8;
  const Order order(10'037, {.seed = 1, .block = block, .window_blocks = window_blocks});
  const auto list = all_of(order.epoch(4));
  for (std::size_t begin = 0; begin + 800 <= list.size(); begin += 800) {
    std::vector<std::int64_t> window(list.begin() + static_cast<std::ptrdiff_t>(begin),
                                     list.begin() + static_cast<std::ptrdiff_t>(begin + 800));
    std::sort(window.begin(), window.end());
    int jumps = 0;
    for (std::size_t i = 1; i < window.size(); ++i) jumps += window[i] != window[i - 1] + 1;
    EXPECT_LE(jumps, window_blocks) << "the end of the data may also divide a block";
  }
  std::vector<std::int64_t> first(list.begin(), list.begin() + 50);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
}

TEST(Order, RefusesInvalidOptions) {
  EXPECT_THROW(Order(0), UsageError);
  EXPECT_THROW(Order(10, {.block = 11}), UsageError);
  EXPECT_THROW(Order(10, {.block = 2, .window_blocks = 1}), UsageError);
  EXPECT_THROW(Order(10, {.kind = OrderKind::torch, .block = 2}), UsageError);
}

}  // namespace
}  // namespace lockstep
