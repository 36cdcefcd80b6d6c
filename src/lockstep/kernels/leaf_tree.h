// The order in which contributions are joined, so that a sum has the same bits whoever computes it.
//
// Words: a leaf is the smallest unit that contributes: a rank, or later one of several micro-shards
// of a rank. The tree over leaves [begin, end) is a leaf when there is one, else it joins the trees
// over [begin, middle) and [middle, end), where middle - begin is the largest power of two below
// end - begin: so aligned blocks of leaves stay whole whatever their number. A contribution is
// what one rank brings: the finished tree over its interval of leaves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct LeafInterval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const LeafInterval&, const LeafInterval&) = default;
};

/// The joining of contributions as the program of a small stack machine.
class TreePlan {
 public:
  /// Contribution i is leaf i. `num_contributions` is at least 1.
  [[nodiscard]] static TreePlan over_ranks(int num_contributions);

  /// Contribution i is the tree over intervals[i]. Throws UsageError unless the intervals follow
  /// each other from leaf 0 without a gap and each is a whole subtree of the tree over all leaves.
  [[nodiscard]] static TreePlan over(std::span<const LeafInterval> intervals);

  /// What to do, in order: a number from 0 puts that contribution on the stack; kJoin replaces the
  /// two topmost entries by the lower one joined with the upper one. One entry is left at the end.
  static constexpr int kJoin = -1;
  [[nodiscard]] std::span<const int> steps() const noexcept { return steps_; }
  /// True when every contribution is one leaf.
  [[nodiscard]] bool is_over_ranks() const noexcept { return over_ranks_; }
  /// The most entries the stack ever holds.
  [[nodiscard]] int depth() const noexcept { return depth_; }
  [[nodiscard]] int num_contributions() const noexcept {
    return (static_cast<int>(steps_.size()) + 1) / 2;
  }

 private:
  TreePlan(std::vector<int> steps, bool over_ranks);

  std::vector<int> steps_;
  bool over_ranks_;
  int depth_ = 0;
};

}  // namespace lockstep
