// The ranks of a job as seen by one of them: how many there are, which one this is, where the
// others run.
//
// Words: a node is what the launcher calls a node; local rank and local size count within it. A
// host is a set of ranks that have proven to share memory (same_host.h). Nodes and hosts are the
// same if the launcher gives no nodes, and nearly always otherwise.
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
class RankPage;
struct RankLocation;

/// A value, cheap to copy.
class World {
 public:
  /// A world of one process: rank 0 of 1, without a store. Source and run folder are those of
  /// `placement`. Throws UsageError when the placement's size is not 1.
  [[nodiscard]] static World alone(const Placement& placement = {});

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] int local_rank() const noexcept;
  [[nodiscard]] int local_size() const noexcept;
  [[nodiscard]] int node() const noexcept;
  [[nodiscard]] int num_nodes() const noexcept;

  /// The number of the host that `rank` runs on; hosts are numbered in the order of their lowest
  /// ranks. host_of, same_host and address_of throw UsageError for an invalid rank.
  [[nodiscard]] int host_of(int rank) const;
  /// True when `a` and `b` have proven to share memory, and for a == b.
  [[nodiscard]] bool same_host(int a, int b) const;
  /// The IP address of `rank`: that of its network settings, else the local address of its
  /// connection to the store's server.
  [[nodiscard]] const std::string& address_of(int rank) const;
  [[nodiscard]] int num_hosts() const noexcept;

  /// Which launcher placed this process.
  [[nodiscard]] PlacementSource source() const noexcept;
  /// The folder for all files of the job; nullopt when none was requested.
  [[nodiscard]] const std::optional<std::string>& run_dir() const noexcept;

  /// False in a world of one process that no launcher started.
  [[nodiscard]] bool has_store() const noexcept;
  /// The job's store, and the secret that authenticates its connections. The store is thread-safe.
  /// Both throw UsageError when there is no store.
  [[nodiscard]] Store& store() const;
  [[nodiscard]] const Secret& secret() const;

  /// Keeps `companion` alive while any copy of this World lives and until its store has left. Used
  /// for the store's server in the process that runs it.
  void keep(std::shared_ptr<const void> companion);

  /// Keeps `guest` alive while any copy of this World lives. It is destroyed before the store
  /// leaves, so it may use the store in its destructor.
  void keep_until_leaving(std::shared_ptr<const void> guest);

  /// The page of this rank (trace/rank_page.h), which `lockstep top` and the launcher read: call
  /// page().step(n) at the begin of each step. The same for all copies. set_page() is for init().
  [[nodiscard]] RankPage& page() const noexcept;
  void set_page(RankPage page);

  /// The state that the groups of this world share in this process; the same for all copies.
  [[nodiscard]] const std::shared_ptr<GroupRegistry>& groups() const noexcept;

 private:
  struct State;
  friend World meet(Store store, const Placement& placement, Deadline deadline,
                    const std::string& identity);

  explicit World(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  [[nodiscard]] std::size_t index_of(int rank) const;
  [[nodiscard]] const RankLocation& own_location() const noexcept;

  // Shared: all copies use one connection to the store, which leaves when the last copy is
  // destroyed.
  std::shared_ptr<State> state_;
};

/// Forms the world: exchanges the placements of all ranks and determines their hosts.
/// Collective: every rank calls this once, with a Store that is connected as the placement's rank.
/// Returns when all ranks have called it and the hosts are proven.
/// Throws PeerError when a rank is lost or has not called it by the deadline (the message lists the
/// ranks that have and that have not); UsageError when the placements contradict each other, or
/// this machine does not have the interface of the placement's network settings; SystemError when
/// the server is lost. Only tests pass an identity of the host.
[[nodiscard]] World meet(Store store, const Placement& placement, Deadline deadline);
[[nodiscard]] World meet(Store store, const Placement& placement, Deadline deadline,
                         const std::string& identity);

}  // namespace lockstep
