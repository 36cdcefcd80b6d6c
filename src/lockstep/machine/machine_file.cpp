// A machine as JSON. Files are untrusted: every field is validated before use, and unknown fields
// are refused, so that a misspelled field does not count as absent.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/json.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/machine/machine.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostFileBytes = std::size_t{4} << 20U;
constexpr std::int64_t kMostProcessors = 1 << 20;  // as allowed_processors()
constexpr std::int64_t kMostGpus = 4096;
constexpr std::int64_t kMostCacheBytes = std::int64_t{1} << 50;
constexpr std::array<std::string_view, 3> kCacheKinds{"data", "instruction", "unified"};

// Reads the fields of one file; each refusal names the file and the field.
class Reader {
 public:
  explicit Reader(std::string_view origin) : origin_(origin) {}

  [[noreturn]] void refuse(std::string_view field, std::string_view expected) const {
    throw UsageError(fmt::format("{}: {} is not {}", origin_, field, expected));
  }

  void check_fields(const Json& object, std::string_view name,
                    std::initializer_list<std::string_view> known) const {
    if (!object.is_object()) refuse(name, "an object");
    for (const auto& [field, value] : object.items()) {
      if (std::find(known.begin(), known.end(), field) == known.end()) {
        throw UsageError(fmt::format("{}: {} has an unknown field \"{:.40}\"; known fields are {}",
                                     origin_, name, field, fmt::join(known, ", ")));
      }
    }
  }

  [[nodiscard]] const Json& at(const Json& object, const std::string& field) const {
    const auto found = object.find(field);
    if (found == object.end()) {
      throw UsageError(fmt::format("{}: {} is missing", origin_, field));
    }
    return *found;
  }

  [[nodiscard]] std::int64_t integer(const Json& value, std::string_view name,
                                     std::int64_t smallest, std::int64_t largest) const {
    const auto expected = fmt::format("a whole number from {} to {}", smallest, largest);
    if (!value.is_number_integer()) refuse(name, expected);
    // get<std::int64_t> wraps above the largest signed number.
    const bool fits = !value.is_number_unsigned() ||
                      value.get<std::uint64_t>() <= static_cast<std::uint64_t>(largest);
    if (!fits) refuse(name, expected);
    const auto number = value.get<std::int64_t>();
    if (number < smallest || number > largest) refuse(name, expected);
    return number;
  }

  [[nodiscard]] std::string text(const Json& value, std::string_view name) const {
    if (!value.is_string()) refuse(name, "a text");
    return value.get<std::string>();
  }

  [[nodiscard]] const Json& list(const Json& value, std::string_view name) const {
    if (!value.is_array()) refuse(name, "a list");
    return value;
  }

  // Absent or a number above 0.
  [[nodiscard]] std::optional<double> positive(const Json& object, const std::string& field) const {
    const auto found = object.find(field);
    if (found == object.end()) return std::nullopt;
    if (!found->is_number()) refuse(field, "a number above 0");
    const auto number = found->get<double>();
    if (!std::isfinite(number) || number <= 0) refuse(field, "a number above 0");
    return number;
  }

 private:
  std::string_view origin_;
};

std::vector<CpuTopology::Node> nodes_of(const Reader& reader, const Json& json) {
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

std::vector<CpuCache> caches_of(const Reader& reader, const Json& json) {
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
  if (machine.cpu.quota) json["cpu_quota"] = *machine.cpu.quota;
  // The host identity is text of the kernel; bytes that are not valid UTF-8 must not throw here.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Machine machine_from_json(std::string_view text, std::string_view origin) {
  const Reader reader(origin);
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) reader.refuse("the text", "JSON");
  reader.check_fields(json, "the machine",
                      {"format", "version", "architecture", "nodes", "caches", "num_gpus",
                       "hides_sve", "host", "cpu_quota"});
  if (reader.text(reader.at(json, "format"), "format") != "lockstep-machine") {
    reader.refuse("format", "\"lockstep-machine\"");
  }
  (void)reader.integer(reader.at(json, "version"), "version", 1, 1);
  if (!reader.at(json, "hides_sve").is_boolean()) reader.refuse("hides_sve", "true or false");
  return {.architecture = reader.text(reader.at(json, "architecture"), "architecture"),
          .cpu = {.nodes = nodes_of(reader, reader.at(json, "nodes")),
                  .quota = reader.positive(json, "cpu_quota")},
          .caches = caches_of(reader, reader.at(json, "caches")),
          .num_gpus = static_cast<int>(
              reader.integer(reader.at(json, "num_gpus"), "num_gpus", 0, kMostGpus)),
          .hides_sve = json["hides_sve"].get<bool>(),
          .host = reader.text(reader.at(json, "host"), "host")};
}

void write_machine(const std::string& path, const Machine& machine) {
  write_whole(path, to_json(machine));
}

Machine read_machine(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const auto file = FileDescriptor::open(path, O_RDONLY | O_NONBLOCK);
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) {
    throw SystemError(fmt::format("cannot stat {}", path), errno);
  }
  if (!S_ISREG(facts.st_mode)) throw UsageError(fmt::format("{} is not a regular file", path));
  std::string text;
  std::array<char, 1 << 14> buffer{};
  for (;;) {
    const auto count = ::read(file.number(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError(fmt::format("cannot read {}", path), errno);
    if (count == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(count));
    if (text.size() > kMostFileBytes) {
      throw UsageError(fmt::format("{} is not a machine file: it exceeds 4 MiB", path));
    }
  }
  return machine_from_json(text, path);
}

}  // namespace lockstep
