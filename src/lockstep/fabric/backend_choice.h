// Which backend moves the data of a group. Pure: the choice follows from where the ranks run and
// what was asked for, and carries its reason.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class BackendKind {
  shm,  // memory that the ranks of one host share
};
[[nodiscard]] std::string_view to_string(BackendKind kind) noexcept;

/// Where the ranks of a group run; all lists are by rank of the group.
struct Topology {
  std::vector<int> global_ranks;
  std::vector<int> hosts;              // the number of each rank's host
  std::vector<std::string> addresses;  // of the hosts
};

struct BackendOptions {
  std::optional<BackendKind> backend = {};  // none: chosen
};

struct BackendChoice {
  BackendKind kind = BackendKind::shm;
  std::string reason;  // "all 4 ranks are on one host"
};

/// Throws UsageError, naming hosts and ranks, when no backend serves them.
[[nodiscard]] BackendChoice choose_backend(const Topology& topology,
                                           const BackendOptions& options = {});

}  // namespace lockstep
