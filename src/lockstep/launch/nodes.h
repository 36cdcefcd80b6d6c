// The coordination of the launchers of several nodes: they exchange their numbers of ranks and the
// address of each round, a failure on one node ends the round on all, and all make the same
// decision about a restart.
//
// Protocol. Node 0 runs the server of a store at the rendezvous; every launcher is a member of it.
// Keys, of round R:
//   start              the options of node 0: command, nodes, restarts, version
//   nodes/<k>          local size of node k, once
//   job                the job's name, by node 0, once
//   round/R/store      the address of the round's store, and MASTER_PORT, by node 0
//   round/R/stop       why the round ends early, set by the first launcher that knows it; empty
//   when
//                      the round ended normally
//   round/R/node/<k>   how node k's part of the round ended, read by node 0
//   round/R/reports    those of them that say why the round ended, by node 0
//   round/R/next       the decision of node 0: the pause before a restart, or "end"
//   round/R/pages/<k>  the pages of node k's ranks (trace/run_pages.h), replaced every second or
//   two
// Each launcher waits for round/R/stop on a second connection, and at the same time for the loss of
// the launcher of the next node, in a ring. So the neighbor of a launcher that dies detects it at
// once and informs all.
#pragma once

#include <chrono>
#include <cstddef>
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
#include "lockstep/trace/run_pages.h"

namespace lockstep {

struct NodesOptions {
  Endpoint rendezvous = {};
  int node = 0;
  int num_nodes = 2;
  int local_size = 1;
  std::string job = {};  // the job's name; that of node 0 counts
  // These must be equal on all nodes, so that a launcher of an earlier run does not join.
  std::vector<std::string> command = {};
  int max_restarts = 0;
  // Called while other nodes are missing, every `notice_every`, with which and where they are
  // expected.
  std::function<void(const std::string&)> notice = {};
  std::chrono::milliseconds notice_every{10'000};
};

/// The address at which the ranks of one round meet.
struct RoundAddress {
  Endpoint store = {};
  std::uint16_t master_port = 0;
};

/// The report of one node at the end of a round.
struct NodeReport {
  RunCause cause = RunCause::finished;
  std::optional<RankOutcome> culprit = {};  // rank, node, host, status, ended, last lines, stack
  int signal = 0;
  std::string reason = {};
};

constexpr std::size_t kMostReports = 16;

class Nodes {
 public:
  /// Meets the launchers of the other nodes.
  /// Collective: the launcher of every node calls this. Returns when all have met.
  /// Throws PeerError, with the missing nodes and what to check, at the deadline; UsageError for a
  /// different secret, and on a node whose command or options differ from those of node 0.
  Nodes(const NodesOptions& options, const Secret& secret, Deadline deadline);
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  /// The number of ranks on all nodes, and the first rank of this node.
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int first_rank() const noexcept { return first_rank_; }
  /// The bound address of the rendezvous, on node 0; empty on other nodes.
  [[nodiscard]] std::string bound() const;

  /// Returns the address of node 0, which passes it as `mine`; the others pass nullopt.
  /// Collective. Throws PeerError when a launcher is lost.
  [[nodiscard]] RoundAddress share_address(int round, const std::optional<RoundAddress>& mine);

  /// Calls `stop` once, on a separate thread, when another node ends the round or a launcher is
  /// lost.
  void watch(int round, std::function<void(std::string)> stop);
  /// Ends the round on all nodes; the first reason counts. Returns at once: a thread informs them.
  void announce_failure(int round, std::string reason);

  /// Sends the pages of this node's ranks to the other launchers and receives theirs into `pages`,
  /// on a separate thread, until gather(). A launcher that sends none is not waited for.
  void share_pages(int round, RunPages& pages);

  /// Returns the reports that say why the round ended, at most kMostReports: that of the rank that
  /// failed first, then others. Node 0 collects them from all nodes. Collective: every launcher
  /// calls this when its workers have ended. Returns when all have called it. Throws PeerError when
  /// a launcher is lost.
  [[nodiscard]] std::vector<NodeReport> gather(int round, const NodeReport& mine);

  /// Returns the decision of node 0: the pause before the next round; nullopt for no restart.
  /// Collective.
  [[nodiscard]] std::optional<std::chrono::milliseconds> agree_on_restart(
      int round, const std::optional<std::chrono::milliseconds>& mine);

 private:
  [[nodiscard]] std::vector<Member> launchers() const;
  [[nodiscard]] Store connect(const Member& member, const Secret& secret, Deadline deadline) const;
  void wait_for_nodes(Deadline deadline);
  [[nodiscard]] std::vector<NodeReport> collect_reports(int round);
  void send_pages(int round);
  void receive_pages(int round);
  /// Never throws: a launcher that does not receive it is lost anyway.
  void end_round(int round, const std::string& reason) noexcept;

  NodesOptions options_;
  std::unique_ptr<StoreServer> server_;  // on node 0
  std::optional<Store> store_;
  std::optional<Store> watching_;  // used by the watcher only
  std::optional<Store> sharing_;   // used by the sharer only
  std::string job_;
  RunPages* pages_ = nullptr;  // set by share_pages
  int size_ = 0;
  int first_rank_ = 0;
  std::vector<int> first_ranks_;  // by node
  int round_ = 0;                 // the watched round
  std::jthread teller_;
  std::jthread watcher_;
  std::jthread sharer_;
};

}  // namespace lockstep
