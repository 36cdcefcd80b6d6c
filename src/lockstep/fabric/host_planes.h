// The ranks of one host inside a group over several hosts. They are connected by a transport of
// their own, whose registered memory they share; the network connects the hosts.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/transport.h"

namespace lockstep {

struct HostPlanes {
  std::vector<int> hosts;  // by rank of the group: the number of its host
  Planes planes;           // of the ranks of this rank's host
  // Per rank of the host: stage_bytes for its input, then as much for its results.
  std::shared_ptr<RegisteredMemory> stage;
  std::size_t stage_bytes = 0;
  // For HostHeaders; null if each rank posts its own headers.
  std::shared_ptr<RegisteredMemory> headers = {};
};

/// By rank: the host of the membership, or what `host_of` says of the global rank, for tests.
[[nodiscard]] std::vector<int> hosts_of(const Membership& membership,
                                        const std::function<int(int global_rank)>& host_of);

/// Shared memory per rank of the host.
struct HostMemoryBytes {
  std::size_t stage = 0;    // for its input, and as much for its results
  std::size_t headers = 0;  // 0: none
};

/// Connects the ranks of this host by `within`. Exchanges their addresses together with
/// `network_address`, that of this rank in the network: a group exchanges addresses once.
/// Collective over the members. Throws as a Connect does.
[[nodiscard]] HostPlanes connect_within_host(const Connect& within, const Membership& membership,
                                             AddressExchange& addresses,
                                             const std::string& network_address,
                                             const HostMemoryBytes& bytes, Deadline deadline,
                                             const Watch& watch);

/// The `network_address` of a rank in what it has exchanged.
[[nodiscard]] std::string network_address_in(const std::string& exchanged);

}  // namespace lockstep
