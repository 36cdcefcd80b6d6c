// What room machine knows of the GPUs without CUDA, compared with what CUDA says.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <memory>

#include "lockstep/base/environment.h"
#include "lockstep/gpu/copy_timer.h"
#include "lockstep/gpu/device_functions.h"
#include "lockstep/machine/gpu_load.h"
#include "lockstep/machine/gpus.h"
#include "lockstep/machine/machine.h"

namespace lockstep {
namespace {

class GpusOfMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!functions_->count_devices(count_).ok() || count_ == 0) {
      GTEST_SKIP() << "no GPU on this machine";
    }
  }

  std::shared_ptr<DeviceFunctions> functions_ = cuda_functions();
  int count_ = 0;
};

TEST_F(GpusOfMachine, AreThoseOfCudaInItsOrder) {
  const auto environment = Environment::of_process();
  for (const auto detail : {GpuDetail::files, GpuDetail::nvml}) {
    const auto start = std::chrono::steady_clock::now();
    const auto gpus = list_gpus(environment, detail);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    std::cout << gpus_in_words(gpus) << ", driver " << gpu_driver_version() << ", listed in "
              << time.count() << " ms\n";
    ASSERT_EQ(static_cast<int>(gpus.size()), count_);
    for (int i = 0; i < count_; ++i) {
      const auto& gpu = gpus[static_cast<std::size_t>(i)];
      DeviceFacts facts;
      ASSERT_TRUE(functions_->describe(i, facts).ok());
      std::string digits;
      for (const char c : gpu.uuid.substr(gpu.uuid.find('-') + 1)) {
        if (c != '-') digits += c;
      }
      ASSERT_TRUE(digits.empty() || digits.size() == 2 * facts.uuid.size()) << gpu.uuid;
      for (std::size_t byte = 0; 2 * byte < digits.size(); ++byte) {
        EXPECT_EQ(std::stoi(digits.substr(2 * byte, 2), nullptr, 16), facts.uuid[byte]) << gpu.uuid;
      }
    }
  }
}

TEST_F(GpusOfMachine, HaveALoadThatGrowsWithTheMemoryInUse) {
  const auto nvml = Nvml::open();
  if (!nvml) GTEST_SKIP() << "no NVML on this machine";
  const auto gpus = list_gpus(Environment::of_process(), GpuDetail::nvml);
  const auto before = read_gpu_load(*nvml, gpus.front());
  constexpr std::size_t kBytes = std::size_t{1} << 30U;
  std::byte* memory = nullptr;
  ASSERT_TRUE(functions_->set_device(0).ok());
  ASSERT_TRUE(functions_->allocate(kBytes, memory).ok());
  const auto after = read_gpu_load(*nvml, gpus.front());
  std::cout << after.memory_used_bytes.value_or(0) << " bytes, " << after.utilization.value_or(0)
            << " busy, " << after.sm_clock_mhz.value_or(0) << " and "
            << after.memory_clock_mhz.value_or(0) << " MHz, " << after.power_watts.value_or(0)
            << " W\n";
  ASSERT_TRUE(before.memory_used_bytes && after.memory_used_bytes);
  EXPECT_GE(*after.memory_used_bytes - *before.memory_used_bytes, static_cast<double>(kBytes) / 2);
  EXPECT_TRUE(functions_->release(memory).ok());
}

TEST_F(GpusOfMachine, CopyAtRatesThatAreMeasuredOnRequest) {
  const auto timer = make_copy_timer(functions_);
  const auto rates = measure_copy_rates(*timer);
  for (const auto& line : copy_rate_lines(rates)) std::cout << line << '\n';
  for (const auto& rate : rates) EXPECT_GT(rate.bytes_per_second, 1e9);
}

}  // namespace
}  // namespace lockstep
