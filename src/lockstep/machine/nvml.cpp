#include "lockstep/machine/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Sets `function` to the one called `name`; false if the library has none.
template <typename Result, typename... Arguments>
bool load(void* library, const char* name, std::function<Result(Arguments...)>& function) {
  void* address = ::dlsym(library, name);
  if (address == nullptr) return false;
  function = reinterpret_cast<Result (*)(Arguments...)>(address);
  return true;
}

using ReadText = std::function<int(NvmlDevice, char*, unsigned)>;

std::string text_of(const ReadText& read, NvmlDevice device) {
  std::array<char, 96> text{};
  return read(device, text.data(), static_cast<unsigned>(text.size())) == 0 ? text.data() : "";
}

Gpu describe(const NvmlFunctions& nvml, NvmlDevice device) {
  Gpu gpu{.name = text_of(nvml.name, device), .uuid = text_of(nvml.uuid, device)};
  NvmlPciInfo pci{};
  if (nvml.pci_info(device, &pci) == 0) {
    gpu.pci_bus = short_pci_bus(pci.bus_id.data());
  }
  NvmlMemory memory{};
  if (nvml.memory(device, &memory) == 0) gpu.memory_bytes = memory.total;
  return gpu;
}

std::vector<Gpu> mig_devices_of(const NvmlFunctions& nvml, NvmlDevice card, const Gpu& parent) {
  unsigned current = 0;
  unsigned pending = 0;
  unsigned most = 0;
  // Cards without MIG answer with an error.
  if (nvml.mig_mode(card, &current, &pending) != 0 || current == 0) return {};
  if (nvml.most_mig_devices(card, &most) != 0) return {};
  std::vector<Gpu> devices;
  for (unsigned i = 0; i < most; ++i) {
    NvmlDevice device = nullptr;
    if (nvml.mig_device(card, i, &device) != 0) continue;  // indices may have gaps
    devices.push_back(describe(nvml, device));
    devices.back().pci_bus = parent.pci_bus;
  }
  return devices;
}

}  // namespace

std::shared_ptr<const NvmlFunctions> load_nvml() {
  // Never closed: the library keeps threads and handlers of its own.
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto table = std::make_shared<NvmlFunctions>();
  auto& f = *table;
  const bool whole =
      load(library, "nvmlInit_v2", f.init) && load(library, "nvmlShutdown", f.shutdown) &&
      load(library, "nvmlSystemGetDriverVersion", f.driver_version) &&
      load(library, "nvmlDeviceGetCount_v2", f.device_count) &&
      load(library, "nvmlDeviceGetHandleByIndex_v2", f.device_by_index) &&
      load(library, "nvmlDeviceGetHandleByUUID", f.device_by_uuid) &&
      load(library, "nvmlDeviceGetName", f.name) && load(library, "nvmlDeviceGetUUID", f.uuid) &&
      load(library, "nvmlDeviceGetPciInfo_v3", f.pci_info) &&
      load(library, "nvmlDeviceGetMemoryInfo", f.memory) &&
      load(library, "nvmlDeviceGetUtilizationRates", f.utilization) &&
      load(library, "nvmlDeviceGetClockInfo", f.clock) &&
      load(library, "nvmlDeviceGetPowerUsage", f.power) &&
      load(library, "nvmlDeviceGetMigMode", f.mig_mode) &&
      load(library, "nvmlDeviceGetMaxMigDeviceCount", f.most_mig_devices) &&
      load(library, "nvmlDeviceGetMigDeviceHandleByIndex", f.mig_device);
  return whole ? table : nullptr;
}

std::shared_ptr<const Nvml> Nvml::open(std::shared_ptr<const NvmlFunctions> functions) {
  if (!functions || functions->init() != 0) return nullptr;
  return std::shared_ptr<const Nvml>(new Nvml(std::move(functions)));
}

Nvml::Nvml(std::shared_ptr<const NvmlFunctions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() { functions_->shutdown(); }

std::string Nvml::driver_version() const {
  std::array<char, 96> text{};
  const auto size = static_cast<unsigned>(text.size());
  return functions_->driver_version(text.data(), size) == 0 ? text.data() : "";
}

std::vector<GpuCard> Nvml::cards() const {
  unsigned count = 0;
  if (functions_->device_count(&count) != 0) return {};
  std::vector<GpuCard> cards;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    if (functions_->device_by_index(i, &device) != 0) continue;
    auto gpu = describe(*functions_, device);
    auto mig_devices = mig_devices_of(*functions_, device, gpu);
    cards.push_back({std::move(gpu), std::move(mig_devices)});
  }
  std::stable_sort(cards.begin(), cards.end(), [](const GpuCard& a, const GpuCard& b) {
    return a.gpu.pci_bus < b.gpu.pci_bus;
  });
  return cards;
}

std::optional<NvmlDevice> Nvml::find(const Gpu& gpu) const {
  NvmlDevice device = nullptr;
  if (gpu.uuid.empty() || functions_->device_by_uuid(gpu.uuid.c_str(), &device) != 0) {
    return std::nullopt;
  }
  return device;
}

}  // namespace lockstep
