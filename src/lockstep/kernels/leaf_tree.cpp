#include "lockstep/kernels/leaf_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::int64_t middle_of(std::int64_t begin, std::int64_t end) {
  return begin +
         static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(end - begin - 1)));
}

// Appends the program of the tree over [begin, end), which starts with contribution `next`.
void append_tree(std::span<const LeafInterval> intervals, std::int64_t begin, std::int64_t end,
                 std::size_t& next, std::vector<int>& instructions) {
  const auto& first = intervals[next];
  if (first == LeafInterval{begin, end}) {
    instructions.push_back(static_cast<int>(next++));
    return;
  }
  const auto middle = middle_of(begin, end);
  if (end - begin == 1 || first.end > middle) {
    throw UsageError(
        fmt::format("the contribution of leaves {} to {} is not a subtree: the tree over leaves {} "
                    "to {} splits at {}; give each rank a block of leaves that begins at a "
                    "multiple of its power-of-two "
                    "length",
                    first.begin, first.end, begin, end, middle));
  }
  append_tree(intervals, begin, middle, next, instructions);
  append_tree(intervals, middle, end, next, instructions);
  instructions.push_back(TreePlan::kCombine);
}

}  // namespace

TreePlan TreePlan::over_ranks(int num_contributions) {
  std::vector<LeafInterval> intervals;
  for (int rank = 0; rank < num_contributions; ++rank) intervals.push_back({rank, rank + 1});
  return over(intervals);
}

TreePlan TreePlan::over(std::span<const LeafInterval> intervals) {
  LOCKSTEP_ASSERT(!intervals.empty(), "a sum has at least one contribution");
  std::int64_t end = 0;
  for (const auto& interval : intervals) {
    if (interval.begin != end || interval.end <= interval.begin) {
      throw UsageError(fmt::format(
          "a contribution of leaves {} to {} is invalid where leaf {} is next: contributions must "
          "cover the leaves in rank order, without gap or overlap",
          interval.begin, interval.end, end));
    }
    end = interval.end;
  }
  std::vector<int> instructions;
  std::size_t next = 0;
  append_tree(intervals, 0, end, next, instructions);
  return {std::move(instructions), end == static_cast<std::int64_t>(intervals.size())};
}

TreePlan::TreePlan(std::vector<int> instructions, bool over_ranks)
    : instructions_(std::move(instructions)), over_ranks_(over_ranks) {
  int height = 0;
  for (const int instruction : instructions_) {
    height += instruction == kCombine ? -1 : 1;
    depth_ = std::max(depth_, height);
  }
}

}  // namespace lockstep
