#include "lockstep/machine/gpu_load.h"

namespace lockstep {

GpuLoad read_gpu_load(const Nvml& nvml, const Gpu& gpu) {
  const auto device = nvml.find(gpu);
  if (!device) return {};
  const auto& read = nvml.functions();
  GpuLoad load;
  NvmlMemory memory{};
  if (read.memory(*device, &memory) == 0) {
    load.memory_used_bytes = static_cast<double>(memory.used);
    load.memory_total_bytes = static_cast<double>(memory.total);
  }
  NvmlUtilization utilization{};
  if (read.utilization(*device, &utilization) == 0) load.utilization = utilization.gpu / 100.0;
  unsigned value = 0;
  if (read.clock(*device, NvmlClock::sm, &value) == 0) load.sm_clock_mhz = value;
  if (read.clock(*device, NvmlClock::memory, &value) == 0) load.memory_clock_mhz = value;
  if (read.power(*device, &value) == 0) load.power_watts = value / 1000.0;
  return load;
}

}  // namespace lockstep
