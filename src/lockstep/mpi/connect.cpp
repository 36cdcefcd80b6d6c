#include "lockstep/mpi/connect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/network_planes.h"
#include "lockstep/mpi/availability.h"

namespace lockstep {
namespace {

// The process and the end of a rank: "4711 123456 1".
struct Address {
  ProcessIdentity process;
  std::uint64_t end = 0;
};

std::string to_string(const Address& address) {
  return fmt::format("{} {} {}", address.process.process, address.process.started, address.end);
}

Address parse_address(const std::string& text) {
  Address address;
  const char* position = text.data();
  const char* const last = position + text.size();
  const auto read = [&](auto& number) {
    if (position != last && *position == ' ') ++position;
    const auto [next, error] = std::from_chars(position, last, number);
    if (error != std::errc{}) throw SystemError(fmt::format("invalid MPI address '{}'", text), 0);
    position = next;
  };
  read(address.process.process);
  read(address.process.started);
  read(address.end);
  return address;
}

// The least stage holds a cache line for each rank.
HostPlanes connect_host(Membership membership, AddressExchange& addresses, const std::string& own,
                        std::size_t header_bytes, Deadline deadline, const Watch& watch,
                        const MpiOptions& options) {
  membership.hosts = hosts_of(membership, options.host_of);
  const HostMemoryBytes bytes{.stage = std::max(options.stage_bytes, membership.hosts.size() * 64),
                              .headers = header_bytes};
  return connect_within_host(options.within_host, membership, addresses, own, bytes, deadline,
                             watch);
}

Planes connect(const Membership& membership, AddressExchange& addresses, Deadline deadline,
               const Watch& watch, const MpiOptions& options) {
  const auto network = std::static_pointer_cast<Network>(membership.registry->given_network());
  if (!network) {
    throw UsageError("backend mpi was requested, but the world has no MPI communicator: " +
                     how_to_get_mpi());
  }
  NetworkPlanes planes(
      network, "mpi", membership.rank, membership.global_ranks,
      {.inline_bytes = options.inline_bytes,
       .exchange = options.exchange,
       .hosts = options.within_host ? hosts_of(membership, options.host_of) : std::vector<int>()});
  const auto own_address = to_string({ProcessIdentity::of(::getpid()), planes.end()});
  NetworkPlanes::Facts facts;
  if (options.within_host) {
    facts.host = connect_host(membership, addresses, own_address, planes.header_bytes(), deadline,
                              watch, options);
  } else {
    addresses.exchange(own_address);
  }
  std::vector<ProcessIdentity> processes;
  std::vector<std::uint64_t> ends;
  for (int rank = 0; rank < membership.size(); ++rank) {
    const auto address = parse_address(network_address_in(addresses.of(rank)));
    ends.push_back(address.end);
    processes.push_back(address.process);
  }
  planes.set_ends(std::move(ends));
  add_processes(facts, membership, processes);
  return planes.finish(std::move(facts));
}

}  // namespace

Connect connect_by_mpi(const MpiOptions& options) {
  return [options](const Membership& membership, AddressExchange& addresses, Deadline deadline,
                   const Watch& watch) {
    return connect(membership, addresses, deadline, watch, options);
  };
}

double mpi_thread_seconds(const std::shared_ptr<void>& network) {
  return network ? std::static_pointer_cast<Network>(network)->thread_seconds() : 0;
}

}  // namespace lockstep
