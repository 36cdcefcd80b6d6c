// Which sample comes at which position of an epoch: a pure function of (seed, epoch, position),
// whatever the number of ranks and workers. Ranks share one order and take turns in it (sampler.h).
//
//   native      a keyed permutation: no list in memory, any position at once
//   torch       what Python's DistributedSampler draws: randperm from a generator seeded with
//               seed + epoch. A list of 8 bytes a sample, made anew for each epoch
//   sequential  0, 1, 2, …; what evaluation uses
//
// native with a block shuffles for locality, where samples far apart are dear to read: blocks of
// neighbours are shuffled among each other, and samples inside a window of several blocks. At any
// time only one window of the data is being read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/data/permutation.h"

namespace lockstep {

enum class OrderKind { native, torch, sequential };

struct OrderOptions {
  OrderKind kind = OrderKind::native;
  std::uint64_t seed = 0;
  std::int64_t block = 0;           // native: neighbours that stay in one window; 0: a full shuffle
  std::int64_t window_blocks = 16;  // native with a block: how many blocks are mixed
};

/// One epoch of an order. Immutable, cheap to copy, and safe to use from any thread.
class EpochOrder {
 public:
  /// The sample at `position`, which is in [0, size).
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const;
  /// out[i] = the sample at first + i.
  void fill(std::int64_t first, std::span<std::int64_t> out) const;
  /// Puts the sample at each position in the position's place.
  void look_up(std::span<std::int64_t> positions) const;
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }

 private:
  friend class Order;

  struct Sequential {};
  struct Blocks {
    Permutation order;  // of the whole blocks
    RandomKey key;      // of the windows' own permutations
    std::uint64_t epoch = 0;
    std::int64_t block = 0;
    std::int64_t window = 0;  // samples in a window
    std::int64_t shift =
        0;  // the first block start here, another place each epoch: none is short for good
  };
  using List = std::shared_ptr<const std::vector<std::int64_t>>;  // copies share it; it is constant
  using Way = std::variant<Sequential, Permutation, Blocks, List>;

  EpochOrder(std::int64_t size, Way way) : size_(size), way_(std::move(way)) {}

  std::int64_t size_;
  Way way_;
};

class Order {
 public:
  /// Throws UsageError for no samples, and for a block that cannot be.
  explicit Order(std::int64_t size, OrderOptions options = {});

  [[nodiscard]] EpochOrder epoch(std::int64_t epoch) const;
  /// order(epoch, position): the plain form; epoch(…) is quicker for many positions.
  [[nodiscard]] std::int64_t operator()(std::int64_t epoch, std::int64_t position) const;

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] const OrderOptions& options() const noexcept { return options_; }

 private:
  std::int64_t size_;
  OrderOptions options_;
};

/// What torch.randperm(size, generator=Generator().manual_seed(seed)) gives on the CPU.
[[nodiscard]] std::vector<std::int64_t> torch_randperm(std::int64_t size, std::uint64_t seed);

}  // namespace lockstep
