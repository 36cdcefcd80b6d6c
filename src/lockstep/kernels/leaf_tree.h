// The order in which contributions are reduced, so that a sum is bit-identical on whichever rank
// computes it.
//
// Words: a leaf is the smallest unit that contributes: a rank, or one of several micro-shards of a
// rank. The tree over leaves [begin, end) is the leaf itself if there is only one. Otherwise it
// combines the trees over [begin, middle) and [middle, end), where middle - begin is the largest
// power of two below end - begin. Aligned blocks of leaves therefore form subtrees for every number
// of leaves. A contribution is the input of one rank: the reduced tree over its interval of leaves.
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

/// The reduction of contributions as the program of a small stack machine.
class TreePlan {
 public:
  /// Contribution i is leaf i. `num_contributions` is at least 1.
  [[nodiscard]] static TreePlan over_ranks(int num_contributions);

  /// Contribution i is the tree over intervals[i]. Throws UsageError unless the intervals cover the
  /// leaves from 0 in order, without gap or overlap, and each is a whole subtree of the tree over
  /// all leaves.
  [[nodiscard]] static TreePlan over(std::span<const LeafInterval> intervals);

  /// The program. An instruction >= 0 pushes the contribution of that number; kCombine replaces the
  /// two topmost entries by op(lower, upper). One entry remains at the end.
  static constexpr int kCombine = -1;
  [[nodiscard]] std::span<const int> instructions() const noexcept { return instructions_; }
  /// True when every contribution is one leaf.
  [[nodiscard]] bool is_over_ranks() const noexcept { return over_ranks_; }
  /// The maximum number of entries on the stack.
  [[nodiscard]] int depth() const noexcept { return depth_; }
  [[nodiscard]] int num_contributions() const noexcept {
    return (static_cast<int>(instructions_.size()) + 1) / 2;
  }

 private:
  TreePlan(std::vector<int> instructions, bool over_ranks);

  std::vector<int> instructions_;
  bool over_ranks_;
  int depth_ = 0;
};

}  // namespace lockstep
