#include "lockstep/kernels/leaf_tree.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The tree as a formula: leaves by number, combined pairs in brackets.
std::string formula_of(const TreePlan& plan, const std::vector<std::string>& contributions) {
  std::vector<std::string> stack;
  for (const int instruction : plan.instructions()) {
    if (instruction == TreePlan::kCombine) {
      const auto upper = stack.back();
      stack.pop_back();
      stack.back() = "(" + stack.back() + upper + ")";
    } else {
      stack.push_back(contributions.at(static_cast<std::size_t>(instruction)));
    }
  }
  return stack.size() == 1 ? stack.front() : "no tree";
}

std::vector<std::string> digits(int from, int to) {
  std::vector<std::string> all;
  for (int i = from; i < to; ++i) all.push_back(std::string(1, static_cast<char>('0' + i)));
  return all;
}

TEST(LeafTree, KeepsAlignedBlocksWhole) {
  const std::vector<std::string> expected{"0",
                                          "(01)",
                                          "((01)2)",
                                          "((01)(23))",
                                          "(((01)(23))4)",
                                          "(((01)(23))(45))",
                                          "(((01)(23))((45)6))",
                                          "(((01)(23))((45)(67)))"};
  for (int size = 1; size <= 8; ++size) {
    const auto plan = TreePlan::over_ranks(size);
    EXPECT_EQ(formula_of(plan, digits(0, size)), expected[static_cast<std::size_t>(size - 1)]);
    EXPECT_EQ(plan.num_contributions(), size);
    EXPECT_TRUE(plan.is_over_ranks());
  }
}

TEST(LeafTree, DepthIsTheMaximumNumberOfEntriesOnTheStack) {
  EXPECT_EQ(TreePlan::over_ranks(1).depth(), 1);
  EXPECT_EQ(TreePlan::over_ranks(2).depth(), 2);
  EXPECT_EQ(TreePlan::over_ranks(8).depth(), 4);
  EXPECT_EQ(TreePlan::over_ranks(9).depth(), 4);
  EXPECT_EQ(TreePlan::over_ranks(65'536).depth(), 17);
}

// Every way to cut n leaves into whole subtrees, as intervals.
std::vector<std::vector<LeafInterval>> cuts_of(std::int64_t begin, std::int64_t end) {
  std::vector<std::vector<LeafInterval>> cuts{{{begin, end}}};
  if (end - begin == 1) return cuts;
  std::int64_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  for (const auto& lower : cuts_of(begin, begin + half)) {
    for (const auto& upper : cuts_of(begin + half, end)) {
      auto both = lower;
      both.insert(both.end(), upper.begin(), upper.end());
      cuts.push_back(both);
    }
  }
  return cuts;
}

TEST(LeafTree, ContributionsOfWholeSubtreesGiveTheTreeOverAllLeaves) {
  std::size_t count = 0;
  for (int leaves = 1; leaves <= 8; ++leaves) {
    const auto whole = formula_of(TreePlan::over_ranks(leaves), digits(0, leaves));
    for (const auto& intervals : cuts_of(0, leaves)) {
      std::vector<std::string> contributions;
      for (const auto& interval : intervals) {
        const int length = static_cast<int>(interval.end - interval.begin);
        contributions.push_back(
            formula_of(TreePlan::over_ranks(length),
                       digits(static_cast<int>(interval.begin), static_cast<int>(interval.end))));
      }
      EXPECT_EQ(formula_of(TreePlan::over(intervals), contributions), whole);
      ++count;
    }
  }
  EXPECT_GT(count, 50U);
}

std::string refusal_of(const std::vector<LeafInterval>& intervals) {
  try {
    (void)TreePlan::over(intervals);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(LeafTree, RefusesIntervalsThatAreNotACoverByWholeSubtrees) {
  const auto says = [](const std::vector<LeafInterval>& intervals, const std::string& words) {
    const auto refusal = refusal_of(intervals);
    EXPECT_NE(refusal.find(words), std::string::npos) << refusal;
  };
  says({{1, 2}}, "leaves 1 to 2 is invalid where leaf 0 is next");
  says({{0, 2}, {3, 4}}, "leaves 3 to 4 is invalid where leaf 2 is next");
  says({{0, 2}, {1, 4}}, "leaves 1 to 4 is invalid where leaf 2 is next");
  says({{0, 0}, {0, 1}}, "leaves 0 to 0 is invalid where leaf 0 is next");
  says({{0, 3}, {3, 4}}, "leaves 0 to 3 is not a subtree");
  says({{0, 1}, {1, 3}, {3, 4}}, "leaves 1 to 3 is not a subtree");
  says({{0, 3}, {3, 6}}, "begins at a multiple of its power-of-two length");
}

}  // namespace
}  // namespace lockstep
