// How the launchers of several nodes act as one: who has how many ranks, where the ranks of a round
// meet, one failure ends the round everywhere, and all decide alike whether there is another.
//
// Protocol. Node 0 serves a store at the rendezvous; every launcher is a member of it. Keys of
// round R:
//   start              what node 0 was started with: command, nodes, restarts, version
//   nodes/<k>          local size of node k, once
//   job                the job's name, by node 0, once
//   round/R/store      where the ranks of the round meet, and MASTER_PORT, by node 0
//   round/R/stop       why the round ends early; set by whoever knows first, empty when it ended in
//   order round/R/node/<k>   how node k's part ended round/R/next       "restart" and a pause, or
//   "end": node 0's decision
// Each launcher waits for round/R/stop on a second connection, and at the same time for the
// launcher of the next node, as a ring: so a launcher that dies is noticed at once by its
// neighbour, who tells all.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/launch/rank_outcome.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep {

struct NodesOptions {
  Endpoint rendezvous = {};
  int node = 0;
  int num_nodes = 2;
  int local_size = 1;
  std::string job = {};  // node 0's counts
  // What must be equal on all nodes: a launcher that an earlier try has left must not join.
  std::vector<std::string> command = {};
  int max_restarts = 0;
};

/// Where the ranks of one round meet.
struct RoundAddress {
  Endpoint store = {};
  std::uint16_t master_port = 0;
};

/// What one node has to say at the end of a round.
struct NodeReport {
  RunCause cause = RunCause::finished;
  std::optional<RankOutcome> culprit = {};  // rank, node, host, status, ended, last lines, stack
  int signal = 0;
  std::string reason = {};
};

class Nodes {
 public:
  /// Collective among the launchers. Returns when all have come.
  /// Throws PeerError naming who did not come by the deadline, UsageError for a wrong secret, and
  /// on a node that was started with another command than node 0.
  Nodes(const NodesOptions& options, const Secret& secret, Deadline deadline);
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  /// Ranks on all nodes, and the first of this one.
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int first_rank() const noexcept { return first_rank_; }
  /// Where the rendezvous is bound, on node 0; empty elsewhere.
  [[nodiscard]] std::string bound() const;

  /// Node 0 gives `mine`, the others get it. Collective. Throws PeerError when a launcher is lost.
  [[nodiscard]] RoundAddress share_address(int round, const std::optional<RoundAddress>& mine);

  /// Calls `stop`, on a thread of its own, once when another node ends the round or a launcher is
  /// gone.
  void watch(int round, std::function<void(std::string)> stop);
  /// Ends the round on all nodes; the first reason counts. Returns at once: a thread tells them.
  void announce_failure(int round, std::string reason);

  /// Every node's report, after all have ended the round. Collective. Throws PeerError when one is
  /// gone.
  [[nodiscard]] std::vector<NodeReport> gather(int round, const NodeReport& mine);

  /// Node 0's decision: the pause before the next round, nothing for no other round. Collective.
  [[nodiscard]] std::optional<std::chrono::milliseconds> agree_on_restart(
      int round, const std::optional<std::chrono::milliseconds>& mine);

 private:
  [[nodiscard]] std::vector<Member> launchers() const;
  /// Never throws: who cannot be told is gone.
  void end_round(int round, const std::string& reason) noexcept;

  NodesOptions options_;
  std::unique_ptr<StoreServer> server_;  // on node 0
  std::optional<Store> store_;
  std::optional<Store> watching_;  // the watcher's alone
  std::string job_;
  int size_ = 0;
  int first_rank_ = 0;
  int round_ = 0;  // that is watched
  std::jthread teller_;
  std::jthread watcher_;
};

}  // namespace lockstep
