#include "lockstep/machine/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "lockstep/machine/hidden_sve.h"
#include "lockstep/machine/host_identity.h"

namespace lockstep {
namespace {

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "32768K"; 0 for anything else.
std::size_t bytes_of(const std::string& text) {
  std::size_t number = 0;
  for (const char c : text) {
    if (c == 'K') return number << 10U;
    if (c == 'M') return number << 20U;
    if (c < '0' || c > '9' || number > (std::size_t{1} << 40U)) return 0;
    number = 10 * number + static_cast<std::size_t>(c - '0');
  }
  return number;
}

CacheKind kind_of(const std::string& type) {
  if (type == "Data") return CacheKind::data;
  return type == "Instruction" ? CacheKind::instruction : CacheKind::unified;
}

std::string architecture() {
  utsname names{};
  return ::uname(&names) == 0 ? names.machine : "";
}

std::string size_text(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 20U && bytes % (std::size_t{1} << 20U) == 0) {
    return fmt::format("{} MiB", bytes >> 20U);
  }
  return fmt::format("{} KiB", bytes >> 10U);
}

std::string count_text(std::size_t count, std::string_view name) {
  return fmt::format("{} {}{}", count, name, count == 1 ? "" : "s");
}

std::string cpu_line(const Machine& machine) {
  std::size_t processors = 0;
  for (const auto& node : machine.cpu.nodes) {
    for (const auto& core : node.cores) processors += core.processors.size();
  }
  const auto cores = static_cast<std::size_t>(machine.cpu.num_cores());
  auto line = count_text(cores, "core");
  if (processors != cores) line += fmt::format(" with {} processors", processors);
  line += " on " + count_text(machine.cpu.nodes.size(), "NUMA node");
  if (machine.cpu.quota) line += fmt::format(", quota {:.3g} processors", *machine.cpu.quota);
  return line;
}

std::string cache_line(const Machine& machine) {
  std::vector<std::string> parts;
  for (const auto& cache : machine.caches) {
    if (cache.kind == CacheKind::instruction) continue;
    parts.push_back(fmt::format("L{} {}", cache.level, size_text(cache.bytes)));
  }
  return parts.empty() ? "caches unknown" : fmt::format("caches {}", fmt::join(parts, ", "));
}

std::string gpu_line(const Machine& machine) {
  auto line = count_text(static_cast<std::size_t>(machine.num_gpus), "GPU");
  if (!machine.gpus.empty()) line += ": " + gpus_in_words(machine.gpus);
  if (!machine.gpu_driver.empty()) line += ", driver " + machine.gpu_driver;
  return line;
}

}  // namespace

std::size_t Machine::last_level_cache() const noexcept {
  std::size_t largest = 0;
  for (const auto& cache : caches) largest = std::max(largest, cache.bytes);
  return largest;
}

Machine describe_machine(const Environment& environment, GpuDetail detail) {
  const auto allowed = allowed_processors();
  auto gpus = list_gpus(environment, detail);
  const auto num_gpus = static_cast<int>(gpus.size());
  return {.architecture = architecture(),
          .cpu = read_cpu_topology(allowed),
          .caches = read_caches(allowed),
          .num_gpus = num_gpus,
          .gpus = std::move(gpus),
          .gpu_driver = num_gpus > 0 ? gpu_driver_version() : "",
          .hides_sve = hides_sve(),
          .host = host_identity()};
}

std::vector<CpuCache> read_caches(std::span<const int> processors, const std::string& root) {
  std::map<std::pair<int, CacheKind>, std::size_t> largest;
  for (const int processor : processors) {
    for (int index = 0;; ++index) {
      const auto folder =
          fmt::format("{}/devices/system/cpu/cpu{}/cache/index{}", root, processor, index);
      const auto bytes = bytes_of(first_word(folder + "/size"));
      if (bytes == 0) break;
      const auto level = parse_cpu_list(first_word(folder + "/level"));
      auto& known =
          largest[{level.size() == 1 ? level[0] : 1, kind_of(first_word(folder + "/type"))}];
      known = std::max(known, bytes);
    }
  }
  std::vector<CpuCache> caches;
  for (const auto& [key, bytes] : largest) caches.push_back({key.first, key.second, bytes});
  return caches;
}

std::vector<std::string> machine_lines(const Machine& machine) {
  std::vector<std::string> lines{cpu_line(machine), cache_line(machine), gpu_line(machine)};
  if (machine.hides_sve) {
    const auto& [variable, value] = plain_processor_variable();
    lines.push_back(fmt::format(
        "SVE is hidden: LibTorch programs need {}={}; lockstep sets it for the ranks it starts",
        variable, value));
  }
  return lines;
}

}  // namespace lockstep
