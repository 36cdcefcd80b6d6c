// The facts that each rank sends when a world is formed, and the location of each rank that follows
// from them. Pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/rendezvous/launcher_environment.h"

namespace lockstep {

struct RankFacts {
  std::string identity;  // host_identity's
  std::string address;
  std::string source;  // to_string of its PlacementSource
  std::optional<int> local_rank;
  std::optional<int> local_size;
  std::optional<int> node_rank;
  std::optional<int> num_nodes;

  friend bool operator==(const RankFacts&, const RankFacts&) = default;
};

struct RankLocation {
  int host = 0;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int num_nodes = 1;

  friend bool operator==(const RankLocation&, const RankLocation&) = default;
};

[[nodiscard]] RankFacts facts_of(const Placement& placement, const std::string& identity,
                                 const std::string& address);

/// Converts facts to text for the store, and back. The latter throws UsageError for invalid text.
[[nodiscard]] std::string to_text(std::span<const RankFacts> facts);
[[nodiscard]] std::vector<RankFacts> facts_from_text(std::string_view text);

/// Throws UsageError, with the ranks and their values, when two ranks were placed by different
/// launchers, have different numbers of nodes, or have the same local rank on one node.
void expect_no_contradiction(std::span<const RankFacts> facts);

/// The ranks of each identity, in ascending order; groups in the order of their lowest ranks.
[[nodiscard]] std::vector<std::vector<int>> groups_by_identity(std::span<const RankFacts> facts);

/// The number of each rank's host. `proven` are the groups that share memory; a rank in no group is
/// a separate host.
[[nodiscard]] std::vector<int> number_hosts(int size, std::span<const std::vector<int>> proven);

/// The location of each rank: as the launcher gives it; otherwise each host is a node.
[[nodiscard]] std::vector<RankLocation> locate_ranks(std::span<const RankFacts> facts,
                                                     std::span<const int> hosts);

}  // namespace lockstep
