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

std::vector<std::pair<std::string_view, double>> named_figures(const GpuLoad& load) {
  std::vector<std::pair<std::string_view, double>> figures;
  const auto add = [&](std::string_view name, const std::optional<double>& value) {
    if (value) figures.emplace_back(name, *value);
  };
  add("gpu_memory_used_bytes", load.memory_used_bytes);
  add("gpu_memory_total_bytes", load.memory_total_bytes);
  add("gpu_utilization", load.utilization);
  add("gpu_sm_clock_mhz", load.sm_clock_mhz);
  add("gpu_memory_clock_mhz", load.memory_clock_mhz);
  add("gpu_power_watts", load.power_watts);
  return figures;
}

}  // namespace lockstep
