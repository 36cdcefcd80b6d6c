#include "lockstep/shm/connect.h"

#include <utility>

#include "lockstep/shm/connect_internal.h"
#include "lockstep/shm/control_plane_internal.h"
#include "lockstep/shm/data_plane_internal.h"

namespace lockstep {
namespace {

// Rank 0 is the root: the others connect to its socket and receive the memory.
std::unique_ptr<MemoryExchange> meet(const Membership& membership, AddressExchange& addresses,
                                     Deadline deadline, const Watch& watch) {
  if (membership.size() == 1) {
    addresses.exchange({});
    return SocketExchange::alone();
  }
  if (membership.rank == 0) {
    auto listening = SocketExchange::listen();
    addresses.exchange(listening.name);
    return SocketExchange::accept(std::move(listening), *membership.secret, membership.size(),
                                  deadline, watch);
  }
  addresses.exchange({});
  return SocketExchange::connect(addresses.of(0), *membership.secret, membership.rank, deadline,
                                 watch);
}

}  // namespace

Planes planes_over(std::unique_ptr<MemoryExchange> exchange, const Membership& membership,
                   const ShmOptions& options, Deadline deadline) {
  const auto memory = std::make_shared<GroupMemory>(
      exchange->make(GroupMemory::bytes_for(membership.size()), deadline, {}), membership.rank,
      membership.size());
  const auto peers =
      std::make_shared<const Peers>(exchange->processes(), membership.registry->watches());
  Planes planes;
  planes.control = std::make_unique<ShmControlPlane>(memory, peers);
  planes.data = std::make_unique<ShmDataPlane>(options, membership.registry, std::move(exchange),
                                               memory, peers);
  return planes;
}

Connect connect_by_shm(const ShmOptions& options) {
  return [options](const Membership& membership, AddressExchange& addresses, Deadline deadline,
                   const Watch& watch) {
    auto exchange = meet(membership, addresses, deadline, watch);
    return planes_over(std::move(exchange), membership, options, deadline);
  };
}

}  // namespace lockstep
