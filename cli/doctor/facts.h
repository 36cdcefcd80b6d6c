// What `lockstep doctor` finds out about one node. The probes (probe.h, trials.h) fill it in; the
// checks (checks.h) judge it. No field holds a secret: only the mode of the secret file is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/machine/machine.h"

namespace lockstep::cli {

/// How this command was built.
struct BuildFacts {
  std::string version = {};
  std::string torch = {};
  std::string compiler = {};
  std::string type = {};  // "Release"
  std::string architecture = {};
  bool cuda = false;
  bool nccl = false;
  bool mpi = false;
};

/// What the program that uses LibTorch (doctor/program) said.
struct TorchFacts {
  bool started = false;      // false: `error` says why
  std::string error = {};    // one line
  std::string loaded = {};   // "2.11.0", of the library that was loaded
  std::string library = {};  // its path
  int num_gpus = 0;          // that LibTorch can use
  std::string nccl = {};     // version of the library; empty: not found
};

struct LimitFacts {
  std::uint64_t descriptors = 0;       // soft limit
  std::uint64_t most_descriptors = 0;  // hard limit
  std::uint64_t core_bytes = 0;        // soft limit of core files
  std::uint64_t processes = 0;         // soft limit of processes and threads of this user
};

struct MemoryFacts {
  std::uint64_t total = 0;  // bytes, as all below; limited to the cgroup's limit
  std::uint64_t available = 0;
  std::uint64_t swap_used = 0;
  std::string huge_pages = {};  // transparent_hugepage/enabled: "madvise"; empty: unknown
  bool balances_numa = false;   // the kernel moves pages between NUMA nodes
  std::uint64_t shm_size = 0;   // of /dev/shm; 0: there is none
  std::uint64_t shm_free = 0;
  std::uint64_t disk_free = 0;  // of the current folder
};

/// Against node 0; only with several nodes.
struct LinkFacts {
  std::string failure = {};  // why node 0 and this node do not reach each other; empty: they do
  double clock_skew = 0;     // seconds; positive: this node's clock is ahead
  double clock_error = 0;    // seconds: the skew is exact to this
  double bytes_per_second = 0;
};

/// A trial: a part of lockstep that was run.
struct TrialFacts {
  bool ran = false;  // false: it was left out
  bool passed = false;
  std::string text = {};  // what was measured, or the reason of the failure in one line
  double seconds = 0;
};

struct DoctorFacts {
  std::string host = {};
  int node = 0;
  int ranks = 1;  // that are to be started on this node
  BuildFacts build = {};
  TorchFacts torch = {};
  Machine machine = {};
  std::string processor = {};  // its name
  std::string system = {};     // distribution and kernel
  std::vector<std::string> gpus = {};
  std::string driver = {};  // version of the GPU driver; empty: none
  std::string mpi = {};     // first line of `mpirun --version`; empty: not installed
  bool sve_variable_set = false;
  LimitFacts limits = {};
  MemoryFacts memory = {};
  bool clock_synchronized = true;
  std::string loopback_failure = {};  // why processes of this node do not reach each other
  std::uint32_t num_ports = 0;        // that the system gives to listeners without a number
  std::optional<std::uint32_t> secret_mode = {};  // of the secret file; nullopt: there is none
  double memory_bytes_per_second = 0;             // copied by one core; 0: not measured
  double loopback_bytes_per_second = 0;
  std::optional<LinkFacts> link = {};
  TrialFacts all_reduce = {};
  TrialFacts training = {};
};

}  // namespace lockstep::cli
