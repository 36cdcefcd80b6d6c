#include "lockstep/collectives/process_group.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep {
namespace {

TEST(ProcessGroup, OfOneRankGivesBackWhatItWasGiven) {
  ProcessGroup group(World::alone());
  auto tensor = torch::arange(5, torch::kFloat);
  group.all_reduce(tensor).wait();
  EXPECT_TRUE(tensor.equal(torch::arange(5, torch::kFloat)));
  EXPECT_EQ(group.engine(), "shm");
}

}  // namespace
}  // namespace lockstep
