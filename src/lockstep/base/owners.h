// Which rank owns which elements of a range. A sharded optimizer updates only the elements that its
// rank owns. A value that does not change; calls share it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// `count` elements that belong to rank `owner`.
struct OwnedPiece {
  int owner = 0;
  std::int64_t count = 0;
};

/// Elements [begin, begin + count).
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

class Owners {
 public:
  /// `pieces` follow each other without gaps, from element 0. Pieces may be empty; neighbors of one
  /// owner count as one piece. Throws UsageError for a negative count, for an owner that is not one
  /// of `num_ranks` ranks, and for no ranks.
  Owners(int num_ranks, std::span<const OwnedPiece> pieces);

  [[nodiscard]] int num_ranks() const noexcept { return static_cast<int>(of_.size()); }
  /// The elements of all ranks.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// The elements of one rank, ascending; none of the ranges is empty.
  [[nodiscard]] std::span<const ElementRange> of(int rank) const {
    return of_[static_cast<std::size_t>(rank)];
  }
  /// The number of elements of one rank.
  [[nodiscard]] std::int64_t count_of(int rank) const {
    return counts_[static_cast<std::size_t>(rank)];
  }
  /// Equal owners have equal digests; different ones collide with probability 2^-64. Never 0.
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }

 private:
  std::vector<std::vector<ElementRange>> of_;  // by rank
  std::vector<std::int64_t> counts_;           // by rank
  std::int64_t count_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace lockstep
