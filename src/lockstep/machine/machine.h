// What a computer is, as a value: cores by NUMA node, caches, GPUs. describe_machine() reads the
// one that this process runs on; a file can stand for another, for example in a test. What decides
// by the machine takes this value, and reads nothing itself.
//
//   {"format": "lockstep-machine", "version": 1, "architecture": "x86_64",
//    "nodes": [[[0, 2], [1, 3]]], "caches": [{"level": 3, "kind": "unified", "bytes": 33554432}],
//    "num_gpus": 0, "hides_sve": false, "host": "…", "cpu_quota": 2.5}
//
// A node of the file is a list of cores, a core a list of processors.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/machine/cpu_topology.h"

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
  CpuTopology cpu = {};               // what this process may use
  std::vector<CpuCache> caches = {};  // by level, then kind; the largest of each that a core has
  int num_gpus = 0;                   // that ranks may use
  bool hides_sve = false;             // hidden_sve.h
  std::string host = {};              // host_identity.h

  /// Bytes of the largest cache; 0: not known.
  [[nodiscard]] std::size_t last_level_cache() const noexcept;

  friend bool operator==(const Machine&, const Machine&) = default;
};

/// This computer, as far as the calling thread may use it. Measures nothing, loads no CUDA. Throws
/// SystemError.
[[nodiscard]] Machine describe_machine(const Environment& environment);

/// The caches of `processors`, as `root` ("/sys") lists them; empty where it does not.
[[nodiscard]] std::vector<CpuCache> read_caches(std::span<const int> processors,
                                                const std::string& root = "/sys");

[[nodiscard]] std::string to_json(const Machine& machine);
/// Throws UsageError for text that is not a machine, which starts with `origin` and names the
/// field.
[[nodiscard]] Machine machine_from_json(std::string_view json, std::string_view origin);

/// Makes or replaces the file, whole or not at all. Throws SystemError.
void write_machine(const std::string& path, const Machine& machine);
/// Throws SystemError when there is no such file; UsageError as machine_from_json does, and for
/// anything that is not a file of at most 4 MiB.
[[nodiscard]] Machine read_machine(const std::string& path);

/// A few lines for people: cores and NUMA nodes, caches, GPUs, hidden SVE.
[[nodiscard]] std::vector<std::string> machine_lines(const Machine& machine);

}  // namespace lockstep
