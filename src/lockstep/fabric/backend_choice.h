// Selects the backend of a group. Pure: the choice depends only on the hosts of the ranks and on
// the options, and carries its reason.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class BackendKind {
  shm,  // shared memory, for ranks of one host
};
[[nodiscard]] std::string_view to_string(BackendKind kind) noexcept;

/// The hosts of a group's ranks. All lists are indexed by rank of the group.
struct Topology {
  std::vector<int> global_ranks;
  std::vector<int> hosts;              // number of the rank's host
  std::vector<std::string> addresses;  // address of the rank's host
};

struct BackendOptions {
  std::optional<BackendKind> backend = {};  // nullopt: chosen by the topology
};

struct BackendChoice {
  BackendKind kind = BackendKind::shm;
  std::string reason;  // "all 4 ranks are on one host"
};

/// Returns the backend and the reason. Throws UsageError, naming hosts and ranks, if no backend
/// supports the topology.
[[nodiscard]] BackendChoice choose_backend(const Topology& topology,
                                           const BackendOptions& options = {});

}  // namespace lockstep
