#include "lockstep/gpu/copy_timer.h"

#include <gtest/gtest.h>

#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/gpu/test_device_double_internal.h"

namespace lockstep {
namespace {

TEST(CopyTimerOfDevices, CopiesOnEveryPathOfTheProbe) {
  const auto device = std::make_shared<DeviceDouble>(DoubleOptions{.num_devices = 2});
  std::atomic<int> copies = 0;
  device->set_fault([&](std::string_view function) {
    if (function == "copy") ++copies;
    return DeviceStatus();
  });
  const auto timer = make_copy_timer(device);
  const auto rates = measure_copy_rates(*timer, {.bytes = 1 << 16, .repetitions = 3});
  ASSERT_EQ(rates.size(), 10U);
  for (const auto& rate : rates) EXPECT_GT(rate.bytes_per_second, 0.0);
  // Each path is copied once to warm up and three times; two of the ten go both ways.
  EXPECT_EQ(copies, 12 * (1 + 3));
}

TEST(CopyTimerOfDevices, ThrowsInTheWordsOfTheDriver) {
  const auto device = std::make_shared<DeviceDouble>(DoubleOptions{});
  const auto timer = make_copy_timer(device);
  device->set_fault([](std::string_view function) {
    return function == "copy" ? DeviceStatus::failed("link is down") : DeviceStatus();
  });
  try {
    (void)timer->seconds({.to = 0}, 100, 1);
    ADD_FAILURE() << "no error";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("link is down"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
