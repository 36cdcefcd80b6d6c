// Selects the backend of a group. Pure: the choice depends only on the hosts and devices of the
// ranks and on the options, and carries its reason.
//
// Every group has a backend for CPU memory, selected when it is created. A second one, for GPU
// memory, is selected at its first call on a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class BackendKind {
  shm,           // CPU memory: shared memory, for ranks of one host
  tcp,           // CPU memory: TCP, for ranks on several hosts
  hierarchical,  // CPU memory: shm inside each host, tcp between the hosts
  mpi,           // CPU memory: MPI between hosts whose program uses MPI; shm inside each host
  ipc,           // GPU memory: the ranks map each other's memory, for ranks that share one GPU
  staged,        // GPU memory: copies through shared CPU memory
  nccl,          // GPU memory: NCCL, for ranks with one GPU each
};
[[nodiscard]] std::string_view to_string(BackendKind kind) noexcept;

/// The hosts of a group's ranks. All lists are indexed by rank of the group.
struct Topology {
  std::vector<int> global_ranks;
  std::vector<int> hosts;              // number of the rank's host
  std::vector<std::string> addresses;  // address of the rank's host
  bool has_mpi = false;                // the world was created from an MPI communicator
};

/// The GPU that a rank uses.
struct DeviceFacts {
  std::array<std::uint8_t, 16> uuid = {};
  int index = 0;             // in the rank's process
  bool maps_memory = false;  // CUDA IPC and stream waits on words of the host are available
  bool has_nccl = false;     // a usable NCCL is available

  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
};

struct DeviceTopology {
  std::vector<int> global_ranks;     // by rank
  std::vector<DeviceFacts> devices;  // by rank
};

struct BackendOptions {
  // nullopt: chosen by the topology. One for GPU memory leaves the choice for CPU memory as it is;
  // shm refuses GPU memory.
  std::optional<BackendKind> backend = {};
};

struct BackendChoice {
  BackendKind kind = BackendKind::shm;
  std::string reason;          // "all 4 ranks are on one host"
  bool shares_memory = false;  // the ranks of each of several hosts also use shm
};

/// Returns the backend and the reason. Throws UsageError, naming hosts and ranks, if the requested
/// backend does not support the topology.
[[nodiscard]] BackendChoice choose_backend(const Topology& topology,
                                           const BackendOptions& options = {});

/// The same for GPU memory of ranks on one host. Never returns nccl for ranks that share a GPU:
/// NCCL fails with them.
[[nodiscard]] BackendChoice choose_device_backend(const DeviceTopology& topology,
                                                  const BackendOptions& options = {});

}  // namespace lockstep
