// A computer as a value: cores by NUMA node, caches, GPUs. describe_machine() reads the computer
// that this process runs on; a file can describe another one, for example for a test. Code that
// decides by the machine takes this value and reads nothing itself.
//
//   {"format": "lockstep-machine", "version": 1, "architecture": "x86_64",
//    "nodes": [[[0, 2], [1, 3]]], "caches": [{"level": 3, "kind": "unified", "bytes": 33554432}],
//    "num_gpus": 1, "gpus": [{"name": "NVIDIA H200", "uuid": "GPU-…", "pci_bus": "0000:19:00.0",
//    "memory_bytes": 150754820096}], "gpu_driver": "580.65.06",
//    "hides_sve": false, "host": "…", "cpu_quota": 2.5}
//
// In the file, a node is a list of cores and a core is a list of processors. gpus, gpu_driver and
// cpu_quota may be absent.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/machine/cpu_topology.h"
#include "lockstep/machine/gpus.h"

namespace lockstep {

enum class CacheKind { data, instruction, unified };

struct CpuCache {
  int level = 1;  // 1 is the nearest to a core
  CacheKind kind = CacheKind::unified;
  std::size_t bytes = 0;

  friend bool operator==(const CpuCache&, const CpuCache&) = default;
};

struct Machine {
  std::string architecture = {};      // "x86_64", "aarch64"
  CpuTopology cpu = {};               // the processors that this process may use
  std::vector<CpuCache> caches = {};  // by level, then kind; the largest of each
  int num_gpus = 0;                   // GPUs that ranks may use
  std::vector<Gpu> gpus = {};         // these, by CUDA's index; empty if not known one by one
  std::string gpu_driver = {};        // its version; empty if unknown
  bool hides_sve = false;             // hidden_sve.h
  std::string host = {};              // host_identity.h

  /// Bytes of the largest cache; 0 if unknown.
  [[nodiscard]] std::size_t last_level_cache() const noexcept;

  friend bool operator==(const Machine&, const Machine&) = default;
};

/// Describes this computer, limited to the processors that the calling thread may use. Measures
/// nothing and does not load CUDA. Throws SystemError.
[[nodiscard]] Machine describe_machine(const Environment& environment,
                                       GpuDetail detail = GpuDetail::files);

/// The caches of `processors`, as `root` ("/sys") lists them; empty if it lists none.
[[nodiscard]] std::vector<CpuCache> read_caches(std::span<const int> processors,
                                                const std::string& root = "/sys");

[[nodiscard]] std::string to_json(const Machine& machine);
/// Parses the format above. Throws UsageError for any other text; its message starts with `origin`
/// and names the field.
[[nodiscard]] Machine machine_from_json(std::string_view json, std::string_view origin);

/// Creates or replaces the file atomically. Throws SystemError.
void write_machine(const std::string& path, const Machine& machine);
/// Reads the file. Throws SystemError if it does not exist or cannot be read, UsageError as
/// machine_from_json does, and UsageError for anything but a regular file of at most 4 MiB.
[[nodiscard]] Machine read_machine(const std::string& path);

/// A few lines for people: cores and NUMA nodes, caches, GPUs, hidden SVE.
[[nodiscard]] std::vector<std::string> machine_lines(const Machine& machine);

}  // namespace lockstep
