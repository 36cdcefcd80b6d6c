// How busy a GPU is: memory, utilization, clocks, power. For the metrics of a run.
#pragma once

#include <optional>

#include "lockstep/machine/gpus.h"
#include "lockstep/machine/nvml.h"

namespace lockstep {

/// Figures of the whole GPU, not of one process. A figure that the GPU does not have, such as the
/// power of a MIG device, is nullopt.
struct GpuLoad {
  std::optional<double> memory_used_bytes = {};
  std::optional<double> memory_total_bytes = {};
  std::optional<double> utilization = {};  // part of the last sample period with a kernel running
  std::optional<double> sm_clock_mhz = {};
  std::optional<double> memory_clock_mhz = {};
  std::optional<double> power_watts = {};

  friend bool operator==(const GpuLoad&, const GpuLoad&) = default;
};

/// Reads the figures now; about a millisecond. Never throws: a figure that NVML refuses is nullopt.
[[nodiscard]] GpuLoad read_gpu_load(const Nvml& nvml, const Gpu& gpu);

}  // namespace lockstep
