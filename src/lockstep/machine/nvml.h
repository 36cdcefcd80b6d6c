// The driver's management library NVML (libnvidia-ml.so.1), loaded at run time: it tells which GPUs
// there are and how busy they are, and it does not load CUDA. No header of it is needed to build;
// the types below are its binary interface. Tests replace the table of functions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/machine/gpus.h"

namespace lockstep {

struct NvmlPciInfo {
  std::array<char, 16> old_bus_id;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;  // "00000000:19:00.0"
};
struct NvmlMemory {
  std::uint64_t total, free, used;
};
struct NvmlUtilization {
  unsigned gpu, memory;  // percent of the last sample period
};
enum class NvmlClock : int { sm = 1, memory = 2 };
using NvmlDevice = void*;

/// The functions that lockstep calls, by their names in the library. Each returns 0 or an error.
struct NvmlFunctions {
  std::function<int()> init, shutdown;
  std::function<int(char* text, unsigned bytes)> driver_version;
  std::function<int(unsigned* count)> device_count;
  std::function<int(unsigned index, NvmlDevice* device)> device_by_index;
  std::function<int(const char* uuid, NvmlDevice* device)> device_by_uuid;
  std::function<int(NvmlDevice, char*text, unsigned bytes)> name, uuid;
  std::function<int(NvmlDevice, NvmlPciInfo*)> pci_info;
  std::function<int(NvmlDevice, NvmlMemory*)> memory;
  std::function<int(NvmlDevice, NvmlUtilization*)> utilization;
  std::function<int(NvmlDevice, NvmlClock, unsigned* mhz)> clock;
  std::function<int(NvmlDevice, unsigned* milliwatts)> power;
  std::function<int(NvmlDevice, unsigned* current, unsigned* pending)> mig_mode;
  std::function<int(NvmlDevice, unsigned* count)> most_mig_devices;
  std::function<int(NvmlDevice, unsigned index, NvmlDevice* mig)> mig_device;
};

/// Loads the library. Null if it is not installed or lacks a function.
[[nodiscard]] std::shared_ptr<const NvmlFunctions> load_nvml();

/// An initialized NVML. Several threads may use it.
class Nvml {
 public:
  /// Null if `functions` is null or the library does not initialize: no driver, no permission.
  [[nodiscard]] static std::shared_ptr<const Nvml> open(
      std::shared_ptr<const NvmlFunctions> functions = load_nvml());
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  [[nodiscard]] const NvmlFunctions& functions() const noexcept { return *functions_; }
  /// "580.65.06"; empty if unknown.
  [[nodiscard]] std::string driver_version() const;
  /// The cards in the order of their PCI addresses. Cards that this process may not use are absent.
  [[nodiscard]] std::vector<GpuCard> cards() const;
  [[nodiscard]] std::optional<NvmlDevice> find(const Gpu& gpu) const;

 private:
  explicit Nvml(std::shared_ptr<const NvmlFunctions> functions);

  std::shared_ptr<const NvmlFunctions> functions_;
};

}  // namespace lockstep
