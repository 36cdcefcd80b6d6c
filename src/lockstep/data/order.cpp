#include "lockstep/data/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kShuffle = random_purpose("order");
constexpr std::uint64_t kBlocks = random_purpose("order of blocks");
constexpr std::uint64_t kWindows = random_purpose("order in a window");
constexpr std::uint64_t kShift = random_purpose("first block");

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

void check(std::int64_t size, const OrderOptions& options) {
  if (size < 1) {
    throw UsageError(fmt::format("the data has {} samples; one or more are required", size));
  }
  if (options.block == 0) return;
  if (options.kind != OrderKind::native) {
    throw UsageError("only the native order supports blocks; set block = 0 or use native");
  }
  if (options.block < 0 || options.block > size) {
    throw UsageError(fmt::format("a block of {} of {} samples is invalid; use 1 to {}",
                                 options.block, size, size));
  }
  if (options.window_blocks < 2) {
    throw UsageError(
        fmt::format("a window of {} blocks is invalid; use 2 or more", options.window_blocks));
  }
}

}  // namespace

std::int64_t EpochOrder::operator()(std::int64_t position) const {
  look_up({&position, 1});
  return position;
}

void EpochOrder::fill(std::int64_t first, std::span<std::int64_t> out) const {
  std::iota(out.begin(), out.end(), first);
  look_up(out);
}

void EpochOrder::look_up(std::span<std::int64_t> positions) const {
  for (const auto position : positions) {
    LOCKSTEP_ASSERT(position >= 0 && position < size_, "positions are in [0, size)");
  }
  const auto sequential = [](const Sequential&) {};
  const auto permuted = [&](const Permutation& permutation) { permutation.apply(positions); };
  const auto listed = [&](const List& list) {
    for (auto& value : positions) value = (*list)[static_cast<std::size_t>(value)];
  };
  const auto blocked = [&](const Blocks& blocks) {
    std::optional<Permutation> inside;  // of the window that holds `begin`
    std::int64_t begin = -1;
    for (auto& value : positions) {
      const auto window = value / blocks.window;
      if (begin != window * blocks.window) {
        begin = window * blocks.window;
        inside.emplace(std::min(blocks.window, size_ - begin), blocks.key, blocks.epoch,
                       static_cast<std::uint64_t>(window));
      }
      const auto mixed = begin + (*inside)(value - begin);
      // The remainder after the last whole block stays there and is shuffled within its window.
      const auto at = mixed / blocks.block;
      const auto block = at < blocks.order.size() ? blocks.order(at) : at;
      value = (block * blocks.block + mixed % blocks.block + blocks.shift) % size_;
    }
  };
  std::visit(Overloaded{sequential, permuted, blocked, listed}, method_);
}

Order::Order(std::int64_t size, OrderOptions options) : size_(size), options_(options) {
  check(size_, options_);
}

EpochOrder Order::epoch(std::int64_t epoch) const {
  const auto counter = static_cast<std::uint64_t>(epoch);
  const auto key = [&](std::uint64_t purpose) { return RandomKey{options_.seed, purpose}; };
  switch (options_.kind) {
    case OrderKind::sequential:
      return {size_, EpochOrder::Sequential{}};
    case OrderKind::torch:
      return {size_, std::make_shared<const std::vector<std::int64_t>>(
                         torch_randperm(size_, options_.seed + counter))};
    case OrderKind::native:
      break;
  }
  if (options_.block == 0) return {size_, Permutation(size_, key(kShuffle), counter, 0)};
  const auto shift = RandomStream(key(kShift), counter, 0).below(static_cast<std::uint64_t>(size_));
  return {size_,
          EpochOrder::Blocks{.order = Permutation(size_ / options_.block, key(kBlocks), counter, 0),
                             .key = key(kWindows),
                             .epoch = counter,
                             .block = options_.block,
                             .window = options_.block *
                                       std::min(options_.window_blocks, size_ / options_.block + 1),
                             .shift = static_cast<std::int64_t>(shift)}};
}

std::int64_t Order::operator()(std::int64_t epoch, std::int64_t position) const {
  return this->epoch(epoch)(position);
}

std::vector<std::int64_t> torch_randperm(std::int64_t size, std::uint64_t seed) {
  // LibTorch's generator uses the lower 32 bits of its seed, and so gives the numbers of
  // std::mt19937. Its randperm uses one shuffle below a certain size and another one above; both
  // are repeated here.
  std::mt19937 generator(static_cast<std::uint32_t>(seed));
  std::vector<std::int64_t> list(static_cast<std::size_t>(size));
  if (size < std::numeric_limits<std::uint32_t>::max() / 20) {
    std::iota(list.begin(), list.end(), std::int64_t{0});
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {
      std::swap(list[i], list[i + generator() % (list.size() - i)]);
    }
    return list;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::uint64_t high = generator();
    const std::uint64_t low = generator();
    const auto other = static_cast<std::size_t>(((high << 32) | low) % (i + 1));
    list[i] = list[other];
    list[other] = static_cast<std::int64_t>(i);
  }
  return list;
}

}  // namespace lockstep
