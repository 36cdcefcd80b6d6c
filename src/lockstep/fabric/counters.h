// The progress of each rank of a group, as this process sees it: three numbers per rank that only
// grow. They are in memory that this process reads directly. If ranks share memory, the rank itself
// raises them; between hosts, the receiver of its messages does.
//
// Terms: a call has a number, from 1 on, equal on all ranks. A rank has *entered* a call when the
// others can read its record. The work of a call is divided into *phases*, numbered over all calls.
// A call is *completed* on a rank when that rank no longer accesses another rank's memory for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep {

/// A counter value that all ranks must have reached.
struct Condition {
  enum class Of : std::uint8_t { entered, phases, completed };
  Of of = Of::entered;
  std::uint64_t value = 0;
};

class Counters {
 public:
  /// The counter `of` of rank r is the std::atomic<std::uint64_t> at
  /// start + r × rank_stride + of × counter_stride. The memory must outlive this object.
  Counters(const std::byte* start, std::size_t rank_stride, std::size_t counter_stride,
           int size) noexcept
      : start_(start), rank_stride_(rank_stride), counter_stride_(counter_stride), size_(size) {}

  [[nodiscard]] std::uint64_t value(int rank, Condition::Of of) const noexcept {
    const auto* const at = start_ + static_cast<std::size_t>(rank) * rank_stride_ +
                           static_cast<std::size_t>(of) * counter_stride_;
    // Sequentially consistent, because a rank may sleep after this load (Dekker's pattern). On
    // x86-64 and aarch64 the load costs as much as an acquire load.
    return reinterpret_cast<const std::atomic<std::uint64_t>*>(at)->load(std::memory_order_seq_cst);
  }
  /// The minimum over all ranks.
  [[nodiscard]] std::uint64_t lowest(Condition::Of of) const noexcept {
    auto lowest = value(0, of);
    for (int rank = 1; rank < size_; ++rank) lowest = std::min(lowest, value(rank, of));
    return lowest;
  }
  [[nodiscard]] bool lags(int rank, const Condition& condition) const noexcept {
    return value(rank, condition.of) < condition.value;
  }
  /// The first rank that has not fulfilled `condition`; nullopt if all have.
  [[nodiscard]] std::optional<int> lagging(const Condition& condition) const noexcept {
    // Reads the counters of all ranks without an early exit, so that their cache misses overlap.
    int lagging = -1;
    for (int rank = size_ - 1; rank >= 0; --rank) lagging = lags(rank, condition) ? rank : lagging;
    return lagging < 0 ? std::nullopt : std::optional(lagging);
  }

 private:
  const std::byte* start_;
  std::size_t rank_stride_;
  std::size_t counter_stride_;
  int size_;
};

}  // namespace lockstep
