#include "lockstep/collectives/backends.h"

#include "lockstep/fabric/backend_choice.h"
#include "lockstep/fabric/group.h"
#include "lockstep/shm/connect.h"

namespace lockstep {
namespace {

// Also connects the groups of split(): their ranks may all be on one host, for example.
Planes connect(const Membership& membership, AddressExchange& addresses, Deadline deadline,
               const Watch& watch, const BackendOptions& options) {
  const auto choice =
      choose_backend({membership.global_ranks, membership.hosts, membership.addresses}, options);
  Planes planes;
  switch (choice.kind) {
    case BackendKind::shm:
      planes = connect_by_shm()(membership, addresses, deadline, watch);
  }
  planes.reason = choice.reason;
  return planes;
}

}  // namespace

std::shared_ptr<Group> make_group(const World& world) {
  return make_group(world, GroupOptions{}, BackendOptions{});
}

std::shared_ptr<Group> make_group(const World& world, const GroupOptions& options,
                                  const BackendOptions& backend) {
  return make_group(world, options,
                    [backend](const Membership& membership, AddressExchange& addresses,
                              Deadline deadline, const Watch& watch) {
                      return connect(membership, addresses, deadline, watch, backend);
                    });
}

}  // namespace lockstep
