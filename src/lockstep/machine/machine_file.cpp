// A machine as JSON. Files are untrusted: every field is validated before use, and unknown fields
// are refused, so that a misspelled field does not count as absent.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/machine/json_reader_internal.h"
#include "lockstep/machine/machine.h"

namespace lockstep {
namespace {

using Json = JsonReader::Json;

constexpr std::int64_t kMostProcessors = 1 << 20;  // as allowed_processors()
constexpr std::int64_t kMostGpus = 4096;
constexpr std::int64_t kMostCacheBytes = std::int64_t{1} << 50;
constexpr std::int64_t kMostGpuBytes = std::int64_t{1} << 50;
constexpr std::array<std::string_view, 3> kCacheKinds{"data", "instruction", "unified"};

std::vector<CpuTopology::Node> nodes_of(const JsonReader& reader, const Json& json) {
  std::vector<CpuTopology::Node> nodes;
  std::set<int> seen;
  for (const auto& node_json : reader.list(json, "nodes")) {
    auto& node = nodes.emplace_back();
    for (const auto& core_json : reader.list(node_json, "a node of nodes")) {
      auto& core = node.cores.emplace_back();
      for (const auto& processor : reader.list(core_json, "a core of nodes")) {
        core.processors.push_back(static_cast<int>(
            reader.integer(processor, "a processor of nodes", 0, kMostProcessors - 1)));
        if (!seen.insert(core.processors.back()).second) {
          reader.refuse(fmt::format("processor {} of nodes", core.processors.back()),
                        "listed only once");
        }
      }
      if (core.processors.empty()) reader.refuse("a core of nodes", "one processor or more");
    }
    if (node.cores.empty()) reader.refuse("a node of nodes", "one core or more");
  }
  if (nodes.empty()) reader.refuse("nodes", "one node or more");
  return nodes;
}

std::vector<CpuCache> caches_of(const JsonReader& reader, const Json& json) {
  std::vector<CpuCache> caches;
  for (const auto& cache : reader.list(json, "caches")) {
    reader.check_fields(cache, "a cache of caches", {"level", "kind", "bytes"});
    const auto word = reader.text(reader.at(cache, "kind"), "kind of caches");
    const auto kind = std::find(kCacheKinds.begin(), kCacheKinds.end(), word);
    if (kind == kCacheKinds.end()) {
      reader.refuse("kind of caches", fmt::format("one of {}", fmt::join(kCacheKinds, ", ")));
    }
    caches.push_back({.level = static_cast<int>(
                          reader.integer(reader.at(cache, "level"), "level of caches", 1, 9)),
                      .kind = static_cast<CacheKind>(kind - kCacheKinds.begin()),
                      .bytes = static_cast<std::size_t>(reader.integer(
                          reader.at(cache, "bytes"), "bytes of caches", 1, kMostCacheBytes))});
  }
  return caches;
}

std::vector<Gpu> gpus_of(const JsonReader& reader, const Json& json, int num_gpus) {
  const auto found = json.find("gpus");
  if (found == json.end()) return {};
  std::vector<Gpu> gpus;
  for (const auto& gpu : reader.list(*found, "gpus")) {
    reader.check_fields(gpu, "a GPU of gpus", {"name", "uuid", "pci_bus", "memory_bytes"});
    gpus.push_back(
        {.name = reader.text(reader.at(gpu, "name"), "name of gpus"),
         .uuid = reader.text(reader.at(gpu, "uuid"), "uuid of gpus"),
         .pci_bus = reader.text(reader.at(gpu, "pci_bus"), "pci_bus of gpus"),
         .memory_bytes = static_cast<std::size_t>(reader.integer(
             reader.at(gpu, "memory_bytes"), "memory_bytes of gpus", 0, kMostGpuBytes))});
  }
  if (static_cast<int>(gpus.size()) != num_gpus) {
    reader.refuse("gpus", fmt::format("a list of {} GPUs, the number in num_gpus", num_gpus));
  }
  return gpus;
}

}  // namespace

std::string to_json(const Machine& machine) {
  Json nodes = Json::array();
  for (const auto& node : machine.cpu.nodes) {
    Json cores = Json::array();
    for (const auto& core : node.cores) cores.push_back(core.processors);
    nodes.push_back(std::move(cores));
  }
  Json caches = Json::array();
  for (const auto& cache : machine.caches) {
    caches.push_back({{"level", cache.level},
                      {"kind", kCacheKinds[static_cast<std::size_t>(cache.kind)]},
                      {"bytes", cache.bytes}});
  }
  Json json{{"format", "lockstep-machine"},         {"version", 1},
            {"architecture", machine.architecture}, {"nodes", std::move(nodes)},
            {"caches", std::move(caches)},          {"num_gpus", machine.num_gpus},
            {"hides_sve", machine.hides_sve},       {"host", machine.host}};
  for (const auto& gpu : machine.gpus) {
    json["gpus"].push_back({{"name", gpu.name},
                            {"uuid", gpu.uuid},
                            {"pci_bus", gpu.pci_bus},
                            {"memory_bytes", gpu.memory_bytes}});
  }
  if (!machine.gpu_driver.empty()) json["gpu_driver"] = machine.gpu_driver;
  if (machine.cpu.quota) json["cpu_quota"] = *machine.cpu.quota;
  // The host identity is text of the kernel; bytes that are not valid UTF-8 must not throw here.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Machine machine_from_json(std::string_view text, std::string_view origin) {
  const JsonReader reader(origin);
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) reader.refuse("the text", "JSON");
  reader.check_fields(json, "the machine",
                      {"format", "version", "architecture", "nodes", "caches", "num_gpus", "gpus",
                       "gpu_driver", "hides_sve", "host", "cpu_quota"});
  if (reader.text(reader.at(json, "format"), "format") != "lockstep-machine") {
    reader.refuse("format", "\"lockstep-machine\"");
  }
  (void)reader.integer(reader.at(json, "version"), "version", 1, 1);
  if (!reader.at(json, "hides_sve").is_boolean()) reader.refuse("hides_sve", "true or false");
  const auto num_gpus =
      static_cast<int>(reader.integer(reader.at(json, "num_gpus"), "num_gpus", 0, kMostGpus));
  return {.architecture = reader.text(reader.at(json, "architecture"), "architecture"),
          .cpu = {.nodes = nodes_of(reader, reader.at(json, "nodes")),
                  .quota = reader.positive(json, "cpu_quota")},
          .caches = caches_of(reader, reader.at(json, "caches")),
          .num_gpus = num_gpus,
          .gpus = gpus_of(reader, json, num_gpus),
          .gpu_driver =
              json.contains("gpu_driver") ? reader.text(json["gpu_driver"], "gpu_driver") : "",
          .hides_sve = json["hides_sve"].get<bool>(),
          .host = reader.text(reader.at(json, "host"), "host")};
}

void write_machine(const std::string& path, const Machine& machine) {
  write_whole(path, to_json(machine));
}

Machine read_machine(const std::string& path) {
  return machine_from_json(read_regular_file(path), path);
}

}  // namespace lockstep
