#include "lockstep/flat/layout.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep {
namespace {

ParameterFacts facts(std::string name, std::vector<std::int64_t> sizes,
                     at::ScalarType dtype = at::kFloat, bool trains = true) {
  auto tensor = torch::zeros(sizes, dtype);
  tensor.set_requires_grad(trains);
  return facts_of(name, tensor);
}

TEST(Layout, OrdersSlotsFromTheLastParameterToTheFirstOnWholeLines) {
  const auto layout = lay_out({facts("a", {3}), facts("b", {17}), facts("c", {4, 4})});
  ASSERT_EQ(layout.segments.size(), 1U);
  EXPECT_EQ(layout.segments[0].parameters, (std::vector<int>{2, 1, 0}));
  EXPECT_EQ(layout.slots[2].begin, 0);
  EXPECT_EQ(layout.slots[1].begin, 16);
  EXPECT_EQ(layout.slots[0].begin, 48);
  EXPECT_EQ(layout.segments[0].length, 64);
}

TEST(Layout, GivesEachDtypeASegmentOfItsOwn) {
  const auto layout = lay_out({facts("a", {3}), facts("b", {3}, at::kDouble), facts("c", {3})});
  ASSERT_EQ(layout.segments.size(), 2U);
  EXPECT_EQ(layout.segments[0].parameters, (std::vector<int>{2, 0}));
  EXPECT_EQ(layout.segments[1].dtype, at::kDouble);
  EXPECT_EQ(layout.segments[1].length, 8);
}

TEST(Layout, PutsFrozenParametersAfterTrainableOnes) {
  const auto layout =
      lay_out({facts("a", {16}), facts("frozen", {16}, at::kFloat, false), facts("c", {16})});
  EXPECT_EQ(layout.segments[0].parameters, (std::vector<int>{2, 0, 1}));
  EXPECT_EQ(layout.segments[0].trains_length, 32);
  EXPECT_EQ(layout.segments[0].length, 48);
}

TEST(Layout, HoldsParametersWithoutElements) {
  const auto layout = lay_out({facts("a", {2}), facts("empty", {0, 5}), facts("scalar", {})});
  EXPECT_EQ(layout.slots[1].count, 0);
  EXPECT_EQ(layout.slots[2].count, 1);
  EXPECT_EQ(layout.segments[0].length, 32);
}

TEST(ParameterFacts, KeepDenseStridesAndMakeOthersContiguous) {
  const auto dense = torch::zeros({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(facts_of("dense", dense).strides, dense.strides().vec());
  const auto holes = torch::zeros({4, 6}).slice(1, 0, 3);
  EXPECT_EQ(facts_of("holes", holes).strides, (std::vector<std::int64_t>{3, 1}));
}

TEST(ParameterFacts, PrintAsOneLine) {
  EXPECT_EQ(to_string(facts("fc.weight", {2, 3})),
            "fc.weight: Float [2, 3], strides [3, 1], on cpu, trains");
}

}  // namespace
}  // namespace lockstep
