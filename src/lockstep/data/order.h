// The order of the samples in an epoch: a pure function of (seed, epoch, position). It does not
// depend on the number of ranks or workers. All ranks use one order; the sampler divides it among
// them (sampler.h).
//
//   native      a keyed permutation: no list in memory, any position in constant time
//   torch       the order of Python's DistributedSampler: randperm from a generator seeded with
//               seed + epoch. A list of 8 bytes per sample, computed for each epoch
//   sequential  0, 1, 2, …; used for evaluation
//
// native with a block size shuffles with locality, for data that is slow to read at random: blocks
// of consecutive samples are permuted, and then the samples within a window of several blocks. At
// any time only one window of the data is read.
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
  std::int64_t block = 0;           // native: consecutive samples per block; 0: a full shuffle
  std::int64_t window_blocks = 16;  // native with a block size: blocks per window
};

/// The order of one epoch. Immutable, cheap to copy, thread-safe.
class EpochOrder {
 public:
  /// The sample at `position`, which is in [0, size).
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const;
  /// out[i] = the sample at first + i.
  void fill(std::int64_t first, std::span<std::int64_t> out) const;
  /// Replaces each position by the sample at that position.
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
    std::int64_t shift = 0;   // the sample at which the first block starts; another one in each
                              // epoch, so that the samples of the short last block change
  };
  using List = std::shared_ptr<const std::vector<std::int64_t>>;  // copies share it; it is constant
  using Method = std::variant<Sequential, Permutation, Blocks, List>;

  EpochOrder(std::int64_t size, Method method) : size_(size), method_(std::move(method)) {}

  std::int64_t size_;
  Method method_;
};

class Order {
 public:
  /// Throws UsageError if `size` is below 1, and for invalid blocks or windows.
  explicit Order(std::int64_t size, OrderOptions options = {});

  /// The order of one epoch.
  [[nodiscard]] EpochOrder epoch(std::int64_t epoch) const;
  /// The sample at one position of one epoch. For many positions, epoch() is faster.
  [[nodiscard]] std::int64_t operator()(std::int64_t epoch, std::int64_t position) const;

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] const OrderOptions& options() const noexcept { return options_; }

 private:
  std::int64_t size_;
  OrderOptions options_;
};

/// The result of torch.randperm(size, generator=Generator().manual_seed(seed)) on the CPU.
[[nodiscard]] std::vector<std::int64_t> torch_randperm(std::int64_t size, std::uint64_t seed);

}  // namespace lockstep
