// The planes of a group whose ranks are connected by a network. Written once for all networks.
// The ranks of one host may share memory (host_planes.h); otherwise they use the network too.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/fabric/exchange_plan.h"
#include "lockstep/fabric/host_planes.h"
#include "lockstep/fabric/network.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/rendezvous/peers.h"

namespace lockstep {

struct NetworkPlaneOptions {
  // The largest input that travels with its call, at most 16 KiB; equal on all ranks.
  std::size_t inline_bytes = 16U << 10;
  ExchangeOptions exchange = {};
  // In larger groups, ranks relay what goes to all of them, and have connections to few others.
  int most_direct = std::numeric_limits<int>::max();
  // By rank, if the ranks of a host share memory (Facts::host); otherwise empty.
  std::vector<int> hosts = {};
};

/// The planes under construction: the ends of all ranks must be known before the planes exist.
class NetworkPlanes {
 public:
  /// Opens this rank's end. `kind` is the name of the network.
  NetworkPlanes(std::shared_ptr<Network> network, std::string kind, int rank,
                std::vector<int> global_ranks, const NetworkPlaneOptions& options);
  ~NetworkPlanes();

  /// The number of this rank's end, for the other ranks.
  [[nodiscard]] std::uint64_t end() const noexcept;

  /// The shared memory per rank for the headers of a host (HostMemoryBytes); 0: none.
  [[nodiscard]] std::size_t header_bytes() const;

  /// The ranks with which this one exchanges messages from set_ends() on: all others, or its
  /// partners (relay.h) if the ranks relay. It meets the others when they exchange data.
  [[nodiscard]] std::vector<int> first_peers() const;
  /// Called when this rank is connected to them. `ends` by rank.
  void set_ends(std::vector<std::uint64_t> ends);

  struct Facts {
    std::function<std::string(int rank)> describe;  // the process of a rank (ControlPlane)
    bool shares_cores = false;                      // ControlPlane::shares_cores
    std::optional<HostPlanes> host = {};            // if the ranks of a host share memory
  };
  /// Called once, when all ranks are connected.
  [[nodiscard]] Planes finish(Facts facts);

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Fills in what follows from the processes of the ranks: describe and shares_cores.
void add_processes(NetworkPlanes::Facts& facts, const Membership& membership,
                   const std::vector<ProcessIdentity>& processes);

}  // namespace lockstep
