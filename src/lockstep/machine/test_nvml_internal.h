// A double of NVML: cards described by a test.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/machine/nvml.h"

namespace lockstep::testing {

struct FakeGpu {
  std::string name = {};
  std::string uuid = {};
  std::string bus_id = {};
  NvmlMemory memory = {};
  NvmlUtilization utilization = {};
  unsigned sm_mhz = 0;
  unsigned memory_mhz = 0;
  unsigned milliwatts = 0;
  bool has_power = true;
  std::vector<FakeGpu> mig_devices = {};
};

struct FakeNvml {
  std::vector<FakeGpu> gpus;
  int initialized = 0;  // init calls minus shutdown calls
  int error_of_init = 0;
};

/// The functions over `nvml`, which must outlive them.
inline std::shared_ptr<const NvmlFunctions> functions_of(FakeNvml& nvml) {
  constexpr int kNotFound = 6;
  constexpr int kNotSupported = 3;
  constexpr int kTooSmall = 7;
  const auto fake = [](NvmlDevice device) -> FakeGpu& { return *static_cast<FakeGpu*>(device); };
  const auto put = [](const std::string& text, char* to, unsigned bytes) {
    if (text.size() >= bytes) return kTooSmall;
    std::memcpy(to, text.c_str(), text.size() + 1);
    return 0;
  };
  auto table = std::make_shared<NvmlFunctions>();
  table->init = [&nvml] {
    if (nvml.error_of_init == 0) ++nvml.initialized;
    return nvml.error_of_init;
  };
  table->shutdown = [&nvml] { return --nvml.initialized, 0; };
  table->driver_version = [put](char* to, unsigned bytes) { return put("580.1", to, bytes); };
  table->device_count = [&nvml](unsigned* count) {
    *count = static_cast<unsigned>(nvml.gpus.size());
    return 0;
  };
  table->device_by_index = [&nvml](unsigned index, NvmlDevice* device) {
    *device = &nvml.gpus.at(index);
    return 0;
  };
  table->device_by_uuid = [&nvml](const char* uuid, NvmlDevice* device) {
    for (auto& gpu : nvml.gpus) {
      if (gpu.uuid == uuid) return *device = &gpu, 0;
      for (auto& mig : gpu.mig_devices) {
        if (mig.uuid == uuid) return *device = &mig, 0;
      }
    }
    return kNotFound;
  };
  table->name = [=](NvmlDevice device, char* to, unsigned bytes) {
    return put(fake(device).name, to, bytes);
  };
  table->uuid = [=](NvmlDevice device, char* to, unsigned bytes) {
    return put(fake(device).uuid, to, bytes);
  };
  table->pci_info = [=](NvmlDevice device, NvmlPciInfo* info) {
    return put(fake(device).bus_id, info->bus_id.data(),
               static_cast<unsigned>(info->bus_id.size()));
  };
  table->memory = [=](NvmlDevice device, NvmlMemory* memory) {
    return *memory = fake(device).memory, 0;
  };
  table->utilization = [=](NvmlDevice device, NvmlUtilization* value) {
    return *value = fake(device).utilization, 0;
  };
  table->clock = [=](NvmlDevice device, NvmlClock clock, unsigned* mhz) {
    *mhz = clock == NvmlClock::sm ? fake(device).sm_mhz : fake(device).memory_mhz;
    return 0;
  };
  table->power = [=](NvmlDevice device, unsigned* milliwatts) {
    *milliwatts = fake(device).milliwatts;
    return fake(device).has_power ? 0 : kNotSupported;
  };
  table->mig_mode = [=](NvmlDevice device, unsigned* current, unsigned* pending) {
    *current = *pending = fake(device).mig_devices.empty() ? 0 : 1;
    return 0;
  };
  table->most_mig_devices = [](NvmlDevice, unsigned* count) { return *count = 7, 0; };
  table->mig_device = [=](NvmlDevice device, unsigned index, NvmlDevice* mig) {
    auto& devices = fake(device).mig_devices;
    // Index 0 is unused, as after the first of them has been destroyed.
    if (index == 0 || index > devices.size()) return kNotFound;
    *mig = &devices[index - 1];
    return 0;
  };
  return table;
}

}  // namespace lockstep::testing
