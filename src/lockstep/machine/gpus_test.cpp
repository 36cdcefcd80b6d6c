#include "lockstep/machine/gpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace lockstep {
namespace {

class GpusTest : public ::testing::Test {
 protected:
  GpusTest() {
    std::filesystem::create_directories(root_ + "/0000:01:00.0");
    std::filesystem::create_directories(root_ + "/0000:02:00.0");
  }
  ~GpusTest() override { std::filesystem::remove_all(root_); }

  const std::string root_ = ::testing::TempDir() + "gpus_" + std::to_string(::getpid());
};

TEST_F(GpusTest, AreTheDevicesOfTheDriver) { EXPECT_EQ(num_gpus({}, root_), 2); }

TEST_F(GpusTest, AreZeroWithoutADriver) { EXPECT_EQ(num_gpus({}, root_ + "/nowhere"), 0); }

TEST_F(GpusTest, AreLimitedByCudaVisibleDevices) {
  EXPECT_EQ(num_gpus({{"CUDA_VISIBLE_DEVICES", ""}}, root_), 0);
  EXPECT_EQ(num_gpus({{"CUDA_VISIBLE_DEVICES", "-1"}}, root_), 0);
  EXPECT_EQ(num_gpus({{"CUDA_VISIBLE_DEVICES", "1"}}, root_), 1);
  EXPECT_EQ(num_gpus({{"CUDA_VISIBLE_DEVICES", "1,0"}}, root_), 2);
  EXPECT_EQ(num_gpus({{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}, root_), 2);
}

}  // namespace
}  // namespace lockstep
