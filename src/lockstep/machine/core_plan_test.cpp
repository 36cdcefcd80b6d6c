#include "lockstep/machine/core_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Nodes of `cores` cores with one processor each, numbered consecutively.
CpuTopology machine(const std::vector<int>& cores) {
  CpuTopology result;
  int number = 0;
  for (const int count : cores) {
    auto& node = result.nodes.emplace_back();
    for (int i = 0; i < count; ++i) node.cores.push_back({{number++}});
  }
  return result;
}

std::vector<std::vector<int>> processors(const std::vector<CoreAssignment>& assignments) {
  std::vector<std::vector<int>> result;
  for (const auto& assignment : assignments) result.push_back(assignment.processors);
  return result;
}

using Lists = std::vector<std::vector<int>>;

TEST(CorePlan, CoresAreDividedIntoEqualContiguousParts) {
  const auto assignments = plan_cores(machine({8}), 2);
  EXPECT_EQ(processors(assignments), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(assignments[0].threads, 4);
}

TEST(CorePlan, TheHyperthreadsOfACoreStayTogetherAndCountAsOneThread) {
  CpuTopology topology;
  topology.nodes.push_back({{{{0, 4}}, {{1, 5}}, {{2, 6}}, {{3, 7}}}});
  const auto assignments = plan_cores(topology, 2);
  EXPECT_EQ(processors(assignments), (Lists{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(assignments[0].threads, 2);
}

TEST(CorePlan, EveryRankHasTheSameNumberOfThreads) {
  const auto assignments = plan_cores(machine({8}), 3);
  EXPECT_EQ(processors(assignments), (Lists{{0, 1}, {2, 3, 4}, {5, 6, 7}}));
  for (const auto& assignment : assignments) EXPECT_EQ(assignment.threads, 2);
}

TEST(CorePlan, ARankStaysOnOneNode) {
  EXPECT_EQ(processors(plan_cores(machine({4, 4}), 3)), (Lists{{0, 1}, {2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(processors(plan_cores(machine({2, 6}), 4)), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
}

TEST(CorePlan, FewerRanksThanNodesGetWholeNodes) {
  EXPECT_EQ(processors(plan_cores(machine({2, 2, 2, 2}), 2)), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(plan_cores(machine({4, 4}), 1)[0].threads, 8);
}

TEST(CorePlan, MoreRanksThanCoresShareCoresWithOneThreadEach) {
  const auto assignments = plan_cores(machine({2}), 5);
  std::map<int, int> load;
  for (const auto& assignment : assignments) {
    ASSERT_EQ(assignment.processors.size(), 1u);
    EXPECT_EQ(assignment.threads, 1);
    ++load[assignment.processors[0]];
  }
  EXPECT_EQ(load, (std::map<int, int>{{0, 3}, {1, 2}}));
}

TEST(CorePlan, TheQuotaOfAContainerLimitsTheThreads) {
  auto topology = machine({16});
  topology.quota = 4.0;
  EXPECT_EQ(plan_cores(topology, 2)[0].threads, 2);
  EXPECT_EQ(plan_cores(topology, 8)[0].threads, 1);
}

TEST(CorePlan, HoldsItsRulesForAnyMachineOfUpToThreeNodes) {
  for (int a = 1; a <= 6; ++a) {
    for (int b = 0; b <= 6; ++b) {
      for (int ranks = 1; ranks <= 14; ++ranks) {
        const auto topology = b == 0 ? machine({a}) : machine({a, b, 3});
        const auto assignments = plan_cores(topology, ranks);
        ASSERT_EQ(assignments.size(), static_cast<std::size_t>(ranks));
        std::map<int, int> load;
        for (const auto& assignment : assignments) {
          ASSERT_FALSE(assignment.processors.empty());
          ASSERT_LE(static_cast<std::size_t>(assignment.threads), assignment.processors.size());
          ASSERT_EQ(assignment.threads, assignments[0].threads);
          for (const int processor : assignment.processors) ++load[processor];
        }
        const auto heaviest = std::max_element(
            load.begin(), load.end(), [](auto& x, auto& y) { return x.second < y.second; });
        const int cores = topology.num_cores();
        EXPECT_LE(heaviest->second, (ranks + cores - 1) / cores) << a << b << ranks;
      }
    }
  }
}

TEST(CorePlan, NoRankOrNoCoreIsRefused) {
  EXPECT_THROW((void)plan_cores(machine({2}), 0), UsageError);
  EXPECT_THROW((void)plan_cores(CpuTopology{}, 1), UsageError);
}

}  // namespace
}  // namespace lockstep
