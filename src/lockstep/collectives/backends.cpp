#include "lockstep/collectives/backends.h"

#include "lockstep/collectives/backends_internal.h"
#include "lockstep/fabric/backend_choice.h"
#include "lockstep/fabric/group.h"
#include "lockstep/mpi/connect.h"
#include "lockstep/shm/connect.h"
#include "lockstep/tcp/connect.h"

namespace lockstep {
namespace {

// Also connects the groups of split(): their ranks may all be on one host, for example.
Planes connect(const Membership& membership, AddressExchange& addresses, Deadline deadline,
               const Watch& watch, const BackendOptions& options) {
  const bool has_mpi = membership.registry->given_network() != nullptr;
  const auto choice = choose_backend(
      {membership.global_ranks, membership.hosts, membership.addresses, has_mpi}, options);
  const auto connect_by = choice.kind == BackendKind::tcp ? connect_by_tcp()
                          : choice.kind == BackendKind::hierarchical
                              ? connect_by_tcp({.within_host = connect_by_shm()})
                          : choice.kind == BackendKind::mpi ? connect_by_mpi()
                                                            : connect_by_shm();
  auto planes = connect_by(membership, addresses, deadline, watch);
  planes.reason = choice.reason;
  return planes;
}

}  // namespace

std::shared_ptr<Group> make_group(const World& world) {
  return make_group(world, GroupOptions{}, BackendOptions{});
}

std::shared_ptr<Group> make_group(const World& world, const GroupOptions& options,
                                  const BackendOptions& backend) {
  return make_group(world, options, connect_ranks(backend));
}

Connect connect_ranks(const BackendOptions& backend) {
  return [backend](const Membership& membership, AddressExchange& addresses, Deadline deadline,
                   const Watch& watch) {
    return connect(membership, addresses, deadline, watch, backend);
  };
}

}  // namespace lockstep
