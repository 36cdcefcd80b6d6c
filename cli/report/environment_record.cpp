#include "cli/report/environment_record.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "build_facts.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/version.h"
#include "lockstep/formats/file_bytes.h"
#include "lockstep/machine/gpus.h"
#include "lockstep/machine/processor_name.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Variables that change results or speed. None holds a secret.
constexpr std::array kVariables{
    "CUDA_VISIBLE_DEVICES",     "LOCKSTEP_RANKS",  "MKL_NUM_THREADS",     "NCCL_DEBUG",
    "NVPL_BLAS_DEBUG_CPU_TYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of "name : value" or "name=value" in a file.
std::string value_in(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const auto separator = line.find_first_of(":=", name.size());
    if (separator == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t\"", separator + 1);
    if (begin == std::string::npos) continue;
    const auto end = line.find_last_not_of(" \t\"");
    return line.substr(begin, end - begin + 1);
  }
  return {};
}

// "16384 kB" in bytes; null if the file has no such line.
Json memory_bytes(std::string_view name) {
  const auto text = value_in("/proc/meminfo", name);
  return text.empty() ? Json(nullptr) : Json(1024 * std::strtoull(text.c_str(), nullptr, 10));
}

Json limit(int resource) {
  rlimit value{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &value) != 0) return nullptr;
  return value.rlim_cur == RLIM_INFINITY ? Json("unlimited") : Json(value.rlim_cur);
}

Json shared_memory_bytes() {
  struct statvfs facts {};
  if (::statvfs("/dev/shm", &facts) != 0) return nullptr;
  return facts.f_blocks * facts.f_frsize;
}

// null for an empty text: the fact is not known here.
Json or_null(std::string text) { return text.empty() ? Json(nullptr) : Json(std::move(text)); }

Json host_json() {
  utsname system{};
  ::uname(&system);
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return {{"name", name.data()},
          {"system", or_null(value_in("/etc/os-release", "PRETTY_NAME"))},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)}};
}

Json processor_json(const Machine& machine) {
  const auto quota = first_line("/sys/fs/cgroup/cpu.max");
  return {{"name", or_null(processor_name())},
          {"architecture", machine.architecture},
          {"cores", machine.cpu.num_cores()},
          {"numa_nodes", machine.cpu.nodes.size()},
          {"last_level_cache_bytes", machine.last_level_cache()},
          {"hides_sve", machine.hides_sve},
          {"cgroup_cpu_max", or_null(quota)}};
}

Json devices_json(const Environment& environment) {
  auto devices = Json::array();
  for (const auto& gpu : list_gpus(environment)) {
    devices.push_back({{"name", gpu.name}, {"pci_bus", gpu.pci_bus}});
  }
  return devices;
}

Json data_json(const std::vector<std::string>& paths) {
  auto files = Json::array();
  for (const auto& path : paths) {
    try {
      const auto bytes = FileBytes::map(path);
      files.push_back({{"file", path},
                       {"bytes", bytes.bytes().size()},
                       {"digest", fmt::format("{:016x}", bytes.data_id())}});
    } catch (const Error&) {  // the ranks report it
    }
  }
  return files;
}

Json variables_json(const Environment& environment) {
  Json variables = Json::object();
  for (const auto* name : kVariables) {
    if (const auto value = environment.find(name)) variables[name] = *value;
  }
  return variables;
}

std::string now_text() {
  const auto now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

bool names_a_secret(std::string_view option) {
  std::string lower(option);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  constexpr std::array kWords{"key", "token", "secret", "password", "passwd", "credential"};
  // --tokens and --tokenizer are lengths and files; --secret-file is a path.
  if (lower.find("tokens") != std::string::npos || lower.find("tokenizer") != std::string::npos ||
      lower.find("file") != std::string::npos) {
    return false;
  }
  return std::ranges::any_of(
      kWords, [&](const char* word) { return lower.find(word) != std::string::npos; });
}

// "ref: refs/heads/main" or the revision itself.
std::string resolve_head(const fs::path& git) {
  auto head = first_line(git / "HEAD");
  if (!head.starts_with("ref: ")) return head;
  const auto name = head.substr(5);
  if (auto revision = first_line(git / name); !revision.empty()) return revision;
  std::ifstream packed(git / "packed-refs");
  for (std::string line; std::getline(packed, line);) {
    if (line.ends_with(" " + name)) return line.substr(0, line.find(' '));
  }
  return {};
}

}  // namespace

std::string command_without_secrets(std::span<const std::string> words) {
  std::string line;
  bool is_secret = false;
  for (const auto& word : words) {
    const auto equal = word.find('=');
    const bool is_option = word.starts_with("-") || equal != std::string::npos;
    auto shown = word;
    if (is_secret && !word.starts_with("-")) shown = "…";
    is_secret = is_option && names_a_secret(word.substr(0, equal));
    if (is_secret && equal != std::string::npos) {
      shown = word.substr(0, equal + 1) + "…";
      is_secret = false;
    }
    line += (line.empty() ? "" : " ") + shown;
  }
  return line;
}

std::string git_revision(const std::string& folder) {
  std::error_code error;
  for (auto path = fs::absolute(folder, error);; path = path.parent_path()) {
    if (fs::is_directory(path / ".git", error)) return resolve_head(path / ".git");
    if (!path.has_relative_path()) return {};
  }
}

std::string environment_json(const EnvironmentFacts& facts, const Machine& machine,
                             const Environment& environment) {
  std::error_code error;
  const auto folder = fs::current_path(error).string();
  const Json json{{"format", "lockstep-environment"},
                  {"version", 1},
                  {"time", now_text()},
                  {"command", command_without_secrets(facts.command)},
                  {"folder", folder},
                  {"source_revision", or_null(git_revision(folder))},
                  {"ranks", facts.ranks},
                  {"lockstep",
                   {{"version", kVersion},
                    {"build", kBuildType},
                    {"compiler", kBuildCompiler},
                    {"libtorch", kBuildTorch},
                    {"cuda", kBuildCuda},
                    {"nccl", kBuildNccl},
                    {"mpi", kBuildMpi}}},
                  {"host", host_json()},
                  {"processor", processor_json(machine)},
                  {"memory",
                   {{"total_bytes", memory_bytes("MemTotal")},
                    {"available_bytes", memory_bytes("MemAvailable")},
                    {"swap_bytes", memory_bytes("SwapTotal")},
                    {"huge_pages", memory_bytes("Hugetlb")},
                    {"cgroup_max", or_null(first_line("/sys/fs/cgroup/memory.max"))}}},
                  {"devices", devices_json(environment)},
                  {"driver", or_null(gpu_driver_version())},
                  {"limits",
                   {{"open_files", limit(RLIMIT_NOFILE)},
                    {"core_bytes", limit(RLIMIT_CORE)},
                    {"locked_memory_bytes", limit(RLIMIT_MEMLOCK)},
                    {"processes", limit(RLIMIT_NPROC)},
                    {"shared_memory_bytes", shared_memory_bytes()}}},
                  {"variables", variables_json(environment)},
                  {"data", data_json(facts.data)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::cli
