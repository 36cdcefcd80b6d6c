// How far each rank of a group is, as this process sees it: three numbers per rank that only grow.
// They lie in memory that this process can read without a call. Where ranks share memory the rank
// itself raises them; between hosts what arrives from it does.
//
// Terms: a call has a number, from 1 on, equal on all ranks. A rank has *entered* a call when the
// others can read its record. What a call then does is cut into *phases*, numbered through all
// calls. A call is *completed* on a rank when that rank will touch no other rank's memory for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep {

/// What all ranks must have done.
struct Condition {
  enum class Of : std::uint8_t { entered, phases, completed };
  Of of = Of::entered;
  std::uint64_t value = 0;
};

class Counters {
 public:
  /// The counter `of` of rank r is the std::atomic<std::uint64_t> at
  /// start + r × rank_stride + of × counter_stride. The memory outlives this.
  Counters(const std::byte* start, std::size_t rank_stride, std::size_t counter_stride,
           int size) noexcept
      : start_(start), rank_stride_(rank_stride), counter_stride_(counter_stride), size_(size) {}

  [[nodiscard]] std::uint64_t value(int rank, Condition::Of of) const noexcept {
    const auto* const at = start_ + static_cast<std::size_t>(rank) * rank_stride_ +
                           static_cast<std::size_t>(of) * counter_stride_;
    // Sequentially consistent for those that go to sleep after a look; on the processors we know it
    // costs what acquire costs.
    return reinterpret_cast<const std::atomic<std::uint64_t>*>(at)->load(std::memory_order_seq_cst);
  }
  /// Of the rank that has come least far.
  [[nodiscard]] std::uint64_t lowest(Condition::Of of) const noexcept {
    auto lowest = value(0, of);
    for (int rank = 1; rank < size_; ++rank) lowest = std::min(lowest, value(rank, of));
    return lowest;
  }
  [[nodiscard]] bool lags(int rank, const Condition& condition) const noexcept {
    return value(rank, condition.of) < condition.value;
  }
  /// The first rank that has not yet fulfilled `condition`.
  [[nodiscard]] std::optional<int> lagging(const Condition& condition) const noexcept {
    // All ranks are looked at, whatever the first says: so their cache misses overlap.
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
