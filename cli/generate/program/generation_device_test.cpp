#include "cli/generate/program/generation_device.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

TEST(GenerationDevice, IsTheGpuForALargeModelOnly) {
  EXPECT_TRUE(choose_generation_device(TrainDevice::automatic, 1, kLargeModel).is_gpu);
  EXPECT_FALSE(choose_generation_device(TrainDevice::automatic, 1, kLargeModel - 1).is_gpu);
  EXPECT_FALSE(choose_generation_device(TrainDevice::automatic, 0, kLargeModel).is_gpu);
}

TEST(GenerationDevice, IsTheRequestedOneOrRefused) {
  EXPECT_TRUE(choose_generation_device(TrainDevice::cuda, 1, 1).is_gpu);
  EXPECT_FALSE(choose_generation_device(TrainDevice::cpu, 1, kLargeModel).is_gpu);
  EXPECT_THROW((void)choose_generation_device(TrainDevice::cuda, 0, 1), UsageError);
}

TEST(GenerationDevice, IsExplainedWhereThereIsAChoice) {
  EXPECT_EQ(choose_generation_device(TrainDevice::automatic, 0, 1).reason, "");
  EXPECT_NE(choose_generation_device(TrainDevice::automatic, 1, 1).reason, "");
}

}  // namespace
}  // namespace lockstep::cli
