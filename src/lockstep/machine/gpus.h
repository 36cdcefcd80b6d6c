// The GPUs of this machine that ranks may use, without loading CUDA.
//
// A *card* is a GPU of the driver. A card in MIG mode is divided into MIG devices, which CUDA
// treats as GPUs. Cards are ordered by PCI address, as CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID;
// CUDA's default order, fastest first, differs only if the cards do.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/environment.h"

namespace lockstep {

struct NvmlFunctions;

struct Gpu {
  std::string name = {};         // "NVIDIA H200"; empty if unknown, as are the others
  std::string uuid = {};         // "GPU-8932f937-…", "MIG-…"
  std::string pci_bus = {};      // "0000:19:00.0"
  std::size_t memory_bytes = 0;  // 0: unknown

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct GpuCard {
  Gpu gpu;
  std::vector<Gpu> mig_devices = {};
};

/// The GPUs that CUDA shows to a process with this value of CUDA_VISIBLE_DEVICES (nullopt: not
/// set), in its order. Entries are numbers, or UUIDs, or beginnings of UUIDs. As in CUDA, the first
/// invalid entry ends the list, a repeated one makes it empty, and a process sees one MIG device
/// and nothing beside it. Pure.
[[nodiscard]] std::vector<Gpu> visible_gpus(std::span<const GpuCard> cards,
                                            const std::optional<std::string>& variable);

/// Where the facts come from. Tests name other places.
struct GpuSources {
  std::string driver_folder = "/proc/driver/nvidia";
  std::string control_file = "/dev/nvidiactl";                      // present with every driver
  std::function<std::shared_ptr<const NvmlFunctions>()> nvml = {};  // empty: load_nvml()
};

enum class GpuDetail {
  files,  // what the files of the driver tell; NVML is loaded only if they do not suffice
  nvml    // memory too: NVML is loaded if there is a driver; some 10 ms
};

/// The visible GPUs, by CUDA's index. Empty without a driver.
[[nodiscard]] std::vector<Gpu> list_gpus(const Environment& environment,
                                         GpuDetail detail = GpuDetail::files,
                                         const GpuSources& sources = {});

/// "580.65.06" of the driver's file; empty without a driver.
[[nodiscard]] std::string gpu_driver_version(const GpuSources& sources = {});

/// "0000:19:00.0" of NVML's "00000000:19:00.0".
[[nodiscard]] std::string short_pci_bus(std::string_view bus_id);

/// "2 × NVIDIA H200 with 139 GiB", kinds separated by commas; empty for no GPU.
[[nodiscard]] std::string gpus_in_words(std::span<const Gpu> gpus);

}  // namespace lockstep
