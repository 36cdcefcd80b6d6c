#include "cli/train/program/rank_log.h"

#include <gtest/gtest.h>

#include "lockstep/machine/test_nvml_internal.h"

namespace lockstep::cli {
namespace {

using lockstep::testing::FakeGpu;
using lockstep::testing::FakeNvml;
using lockstep::testing::functions_of;

FakeNvml busy_card() {
  return {.gpus = {FakeGpu{.uuid = "GPU-a",
                           .memory = {.total = 1000, .free = 600, .used = 400},
                           .utilization = {.gpu = 85, .memory = 40},
                           .sm_mhz = 1980,
                           .memory_mhz = 3201,
                           .milliwatts = 650'500}}};
}

TEST(GpuMeter, HasMemoryUtilizationClocksAndPowerOfTheLastLook) {
  auto fake = busy_card();
  GpuMeter meter(Nvml::open(functions_of(fake)), {.uuid = "GPU-a"});
  EXPECT_FALSE(meter.read_and_reset(1)) << "before the first look";
  meter.look();
  const auto figures = meter.read_and_reset(10);
  ASSERT_TRUE(figures);
  EXPECT_EQ(*figures, (GpuFigures{.utilization = 0.85,
                                  .memory_bytes = 400,
                                  .clock_mhz = 1980,
                                  .memory_clock_mhz = 3201,
                                  .power_watts = 650.5,
                                  .host_syncs = 0}));
  EXPECT_FALSE(meter.read_and_reset(10)) << "without another look";
}

TEST(GpuMeter, HasNoPowerWhereTheCardRefusesIt) {
  auto fake = busy_card();
  fake.gpus[0].has_power = false;
  GpuMeter meter(Nvml::open(functions_of(fake)), {.uuid = "GPU-a"});
  meter.look();
  EXPECT_EQ(meter.read_and_reset(1).value().power_watts, std::nullopt);
}

TEST(GpuMeter, HasNothingWithoutNvml) {
  GpuMeter meter(nullptr, {.uuid = "GPU-a"});
  meter.look();
  EXPECT_FALSE(meter.read_and_reset(1));
}

}  // namespace
}  // namespace lockstep::cli
