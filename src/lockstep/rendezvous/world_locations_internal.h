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
[[nodiscard]] std::string to_text(const RankFacts& facts);
[[nodiscard]] RankFacts facts_from_text(std::string_view text);

/// Ranks in ascending order as text, with ranges: "0-7 9". ranks_from_text throws UsageError for
/// other text, and for a rank that is not below kMaxMembers.
[[nodiscard]] std::string ranks_to_text(std::span<const int> ranks);
[[nodiscard]] std::vector<int> ranks_from_text(std::string_view text);

/// Throws UsageError, with the ranks and their values, when two ranks were placed by different
/// launchers, have different numbers of nodes, or have the same local rank on one node.
void expect_no_contradiction(std::span<const RankFacts> facts);

/// The ranks of each identity, in ascending order; groups in the order of their lowest ranks.
[[nodiscard]] std::vector<std::vector<int>> groups_by_identity(std::span<const RankFacts> facts);

/// The number of each rank's host. `proven` are the groups that share memory; a rank in no group is
/// a separate host.
[[nodiscard]] std::vector<int> number_hosts(int size, std::span<const std::vector<int>> proven);

/// What every rank needs to know of all ranks. Its text has one line per host, not one per rank: of
/// a thousand ranks on 125 hosts, 4 KB.
struct WorldTable {
  std::vector<int> hosts = {};              // by rank
  std::vector<std::string> addresses = {};  // by rank
  // Whether the launcher gives all ranks their place in the node, and their node.
  bool knows_local = false;
  bool knows_nodes = false;

  friend bool operator==(const WorldTable&, const WorldTable&) = default;
};

[[nodiscard]] WorldTable table_of(std::span<const RankFacts> facts, std::vector<int> hosts);
[[nodiscard]] std::string to_text(const WorldTable& table);
/// Throws UsageError for invalid text, and for a table that is not one of `size` ranks.
[[nodiscard]] WorldTable table_from_text(std::string_view text, int size);

/// The location of `rank`, whose own facts are `own`: as the launcher gives it; otherwise each host
/// is a node.
[[nodiscard]] RankLocation locate_rank(int rank, const RankFacts& own, const WorldTable& table);

}  // namespace lockstep
