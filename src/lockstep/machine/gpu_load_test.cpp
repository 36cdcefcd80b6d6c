#include "lockstep/machine/gpu_load.h"

#include <gtest/gtest.h>

#include "lockstep/machine/test_nvml_internal.h"

namespace lockstep {
namespace {

using testing::FakeGpu;
using testing::FakeNvml;

FakeNvml busy_card() {
  return {.gpus = {FakeGpu{.uuid = "GPU-a",
                           .memory = {.total = 1000, .free = 600, .used = 400},
                           .utilization = {.gpu = 85, .memory = 40},
                           .sm_mhz = 1980,
                           .memory_mhz = 3201,
                           .milliwatts = 650'500}}};
}

TEST(GpuLoadFigures, AreThoseOfTheCardInUnitsOfTheirNames) {
  auto fake = busy_card();
  const auto nvml = Nvml::open(testing::functions_of(fake));
  ASSERT_TRUE(nvml);
  EXPECT_EQ(nvml->driver_version(), "580.1");
  const auto load = read_gpu_load(*nvml, {.uuid = "GPU-a"});
  EXPECT_EQ(load, (GpuLoad{.memory_used_bytes = 400,
                           .memory_total_bytes = 1000,
                           .utilization = 0.85,
                           .sm_clock_mhz = 1980,
                           .memory_clock_mhz = 3201,
                           .power_watts = 650.5}));
}

TEST(GpuLoadFigures, ThatACardRefusesAreAbsent) {
  auto fake = busy_card();
  fake.gpus[0].has_power = false;
  const auto nvml = Nvml::open(testing::functions_of(fake));
  const auto load = read_gpu_load(*nvml, {.uuid = "GPU-a"});
  EXPECT_FALSE(load.power_watts);
  EXPECT_EQ(load.sm_clock_mhz, 1980);
  EXPECT_EQ(read_gpu_load(*nvml, {.uuid = "GPU-other"}), GpuLoad{});
  EXPECT_EQ(read_gpu_load(*nvml, {}), GpuLoad{});
}

TEST(NvmlSession, IsEndedOnceByItsLastOwnerAndIsNullWhereNvmlFails) {
  auto fake = busy_card();
  {
    const auto nvml = Nvml::open(testing::functions_of(fake));
    EXPECT_EQ(fake.initialized, 1);
  }
  EXPECT_EQ(fake.initialized, 0);
  fake.error_of_init = 9;
  EXPECT_EQ(Nvml::open(testing::functions_of(fake)), nullptr);
  EXPECT_EQ(Nvml::open(nullptr), nullptr);
  EXPECT_EQ(fake.initialized, 0);
}

}  // namespace
}  // namespace lockstep
