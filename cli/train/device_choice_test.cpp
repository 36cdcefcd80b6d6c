#include "cli/train/device_choice.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

DeviceFacts gpu_machine(TrainDevice asked) {
  return {.asked = asked, .ranks = "auto", .num_gpus = 1, .build_has_cuda = true};
}

std::string refusal_of(const DeviceFacts& facts) {
  try {
    (void)choose_device(facts);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceChoice, TakesTheGpuAndSaysSo) {
  const auto decision = choose_device(gpu_machine(TrainDevice::automatic));
  EXPECT_EQ(decision.device, TrainDevice::cuda);
  EXPECT_NE(decision.reason.find("1 GPU is visible"), std::string::npos) << decision.reason;
}

TEST(DeviceChoice, TakesTheCpuWithoutAWordIfThereIsNoGpu) {
  const auto decision = choose_device({.num_gpus = 0, .build_has_cuda = true});
  EXPECT_EQ(decision.device, TrainDevice::cpu);
  EXPECT_EQ(decision.reason, "");
}

TEST(DeviceChoice, GivesTheReasonIfAGpuStaysUnused) {
  auto facts = gpu_machine(TrainDevice::automatic);
  facts.ranks = "4";
  EXPECT_EQ(choose_device(facts).device, TrainDevice::cpu);
  EXPECT_NE(choose_device(facts).reason.find("--ranks is 4"), std::string::npos);
  facts = gpu_machine(TrainDevice::automatic);
  facts.build_has_cuda = false;
  facts.cuda_missing = "no CUDA compiler (nvcc)";
  facts.cuda_remedy = "tools/bootstrap gpu";
  EXPECT_EQ(choose_device(facts).device, TrainDevice::cpu);
  EXPECT_NE(choose_device(facts).reason.find("no CUDA compiler (nvcc)"), std::string::npos);
  EXPECT_NE(choose_device(facts).reason.find("tools/bootstrap gpu"), std::string::npos);
}

TEST(DeviceChoice, TakesOneGpuPerRank) {
  auto facts = gpu_machine(TrainDevice::automatic);
  facts.num_gpus = 4;
  EXPECT_NE(choose_device(facts).reason.find("--ranks 4 uses them all"), std::string::npos);
  facts.ranks = "4";
  EXPECT_EQ(choose_device(facts).device, TrainDevice::cuda);
  EXPECT_NE(choose_device(facts).reason.find("with 4 ranks"), std::string::npos);
}

TEST(DeviceChoice, LetsRanksShareAGpuOnlyIfAllowed) {
  auto facts = gpu_machine(TrainDevice::cuda);
  facts.ranks = "2";
  EXPECT_NE(refusal_of(facts).find("--allow-shared-gpu"), std::string::npos);
  facts.allow_shared_gpu = true;
  EXPECT_EQ(choose_device(facts).device, TrainDevice::cuda);
  facts.asked = TrainDevice::automatic;
  EXPECT_EQ(choose_device(facts).device, TrainDevice::cuda);
}

TEST(DeviceChoice, ObeysTheCommandLine) {
  EXPECT_EQ(choose_device(gpu_machine(TrainDevice::cpu)).device, TrainDevice::cpu);
  EXPECT_EQ(choose_device(gpu_machine(TrainDevice::cuda)).device, TrainDevice::cuda);
}

TEST(DeviceChoice, RefusesCudaThatIsNotAvailable) {
  auto facts = gpu_machine(TrainDevice::cuda);
  facts.num_gpus = 0;
  EXPECT_NE(refusal_of(facts).find("no GPU is visible"), std::string::npos);
  facts = gpu_machine(TrainDevice::cuda);
  facts.ranks = "2";
  EXPECT_NE(refusal_of(facts).find("--ranks is 2"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli
