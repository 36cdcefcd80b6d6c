// The ranks of a job as each of them knows it: how many there are, which one this is, where the
// others run.
//
// Words: a node is what the launcher calls one, and local rank and size count within it; a host is
// a set of ranks that have proven to share memory (same_host.h). They are the same where the
// launcher says nothing, and nearly always.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/launcher_environment.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep {

class GroupRegistry;
struct RankLocation;

/// A value, cheap to copy.
class World {
 public:
  /// One process that needs nobody: rank 0 of 1, without a store. Source and run folder are the
  /// placement's. Throws UsageError when its size is not 1.
  [[nodiscard]] static World alone(const Placement& placement = {});

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] int local_rank() const noexcept;
  [[nodiscard]] int local_size() const noexcept;
  [[nodiscard]] int node() const noexcept;
  [[nodiscard]] int num_nodes() const noexcept;

  /// The number of the host that `rank` runs on; hosts are numbered in the order of their lowest
  /// ranks. These three throw UsageError for a rank that does not exist.
  [[nodiscard]] int host_of(int rank) const;
  /// True when `a` and `b` have proven to share memory, and for a == b.
  [[nodiscard]] bool same_host(int a, int b) const;
  /// The IP address that `rank` can be reached at: the one its machine reached the store's server
  /// from.
  [[nodiscard]] const std::string& address_of(int rank) const;
  [[nodiscard]] int num_hosts() const noexcept;

  /// Which launcher placed this process.
  [[nodiscard]] PlacementSource source() const noexcept;
  /// The folder that all of the job's files go to; nothing when none was asked for.
  [[nodiscard]] const std::optional<std::string>& run_dir() const noexcept;

  /// False in a world of one that was started alone.
  [[nodiscard]] bool has_store() const noexcept;
  /// The job's store, and the secret its connections are proven with. Threads may use the store at
  /// once. Throw UsageError when there is none.
  [[nodiscard]] Store& store() const;
  [[nodiscard]] const Secret& secret() const;

  /// Keeps `companion` for as long as any copy of this World lives, and until its store has said
  /// goodbye: where this process serves the store, the server.
  void keep(std::shared_ptr<const void> companion);

  /// What the groups of this world share in this process: one for all copies of this World.
  [[nodiscard]] const std::shared_ptr<GroupRegistry>& groups() const noexcept;

 private:
  struct State;
  friend World meet(Store store, const Placement& placement, Deadline deadline,
                    const std::string& identity);

  explicit World(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  [[nodiscard]] std::size_t index_of(int rank) const;
  [[nodiscard]] const RankLocation& own_location() const noexcept;

  // Shared: the connection to the store is one, says goodbye when the last World that uses it goes,
  // and any of them may be that one.
  std::shared_ptr<State> state_;
};

/// Makes the ranks known to each other.
/// Collective: every rank calls this once, with a Store connected as its rank of the placement.
/// Returns when all have come and hosts are proven.
/// Throws PeerError when a rank is lost, or has not come by the deadline (the message lists who
/// came and who did not); UsageError when ranks were placed in ways that contradict each other;
/// SystemError when the server is gone. Only a test gives an identity of its host.
[[nodiscard]] World meet(Store store, const Placement& placement, Deadline deadline);
[[nodiscard]] World meet(Store store, const Placement& placement, Deadline deadline,
                         const std::string& identity);

}  // namespace lockstep
