#include "lockstep/collectives/backends.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/collectives/backends_internal.h"
#include "lockstep/fabric/backend_choice.h"
#include "lockstep/fabric/group.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/gpu/connect.h"
#include "lockstep/gpu/device_functions.h"
#include "lockstep/gpu/nccl_functions.h"
#include "lockstep/gpu/watcher.h"
#include "lockstep/mpi/connect.h"
#include "lockstep/rendezvous/network_link.h"
#include "lockstep/shm/connect.h"
#include "lockstep/tcp/connect.h"

namespace lockstep {
namespace {

// Also connects the groups of split(): their ranks may all be on one host, for example.
Planes connect(const Membership& membership, AddressExchange& addresses, Deadline deadline,
               const Watch& watch, const BackendOptions& options, bool is_fast) {
  const bool has_mpi = membership.registry->given_network() != nullptr;
  const auto choice = choose_backend(
      {membership.global_ranks, membership.hosts, membership.addresses, has_mpi}, options);
  if (choice.kind == BackendKind::shm) {
    auto planes = connect_by_shm()(membership, addresses, deadline, watch);
    planes.reason = choice.reason;
    return planes;
  }
  const bool encrypts = membership.registry->network_settings().encrypts;
  if (encrypts && choice.kind == BackendKind::mpi) {
    throw UsageError(
        "--encrypt (LOCKSTEP_ENCRYPT=1) is set, but backend mpi does not encrypt: request backend "
        "hierarchical or tcp, or create the world with init() instead of a communicator");
  }
  const ExchangeOptions exchange{.link = network_link(Environment::of_process()),
                                 .is_fast = is_fast};
  const auto within_host = choice.shares_memory ? connect_by_shm() : Connect();
  const auto connect_by = choice.kind == BackendKind::mpi
                              ? connect_by_mpi({.within_host = within_host, .exchange = exchange})
                              : connect_by_tcp({.within_host = within_host, .exchange = exchange});
  auto planes = connect_by(membership, addresses, deadline, watch);
  planes.reason = choice.reason + (encrypts ? "; data between them are encrypted" : "");
  return planes;
}

// For CPU memory. `is_fast`: between hosts, sums of floating point may use the ring.
Connect connect_ranks(const BackendOptions& backend, bool is_fast) {
  return [backend, is_fast](const Membership& membership, AddressExchange& addresses,
                            Deadline deadline, const Watch& watch) {
    return connect(membership, addresses, deadline, watch, backend, is_fast);
  };
}

}  // namespace

std::shared_ptr<Group> make_group(const World& world) {
  return make_group(world, GroupOptions{}, BackendOptions{});
}

std::shared_ptr<Group> make_group(const World& world, const GroupOptions& options,
                                  const BackendOptions& backend) {
  return make_group(world, options, connect_ranks(backend, /*is_fast=*/false));
}

std::shared_ptr<Group> make_group_with_devices(
    const World& world, const GroupOptions& options, const BackendOptions& backend, bool is_fast,
    std::function<std::shared_ptr<DeviceFunctions>()> functions) {
  DeviceOptions devices;
  devices.backend = backend;
  devices.functions = std::move(functions);
  devices.nccl = &nccl_functions;
  devices.nccl_reduction = is_fast ? NcclReduction::fast : NcclReduction::exact;
  devices.nccl_ratios = nccl_ratio_file(Environment::of_process());
  devices.watcher = &watcher_of_process;
  // The transports of GPU memory connect the ranks of one host.
  const auto connect_hosts = connect_ranks(backend, is_fast);
  const auto connect_devices = connect_with_devices(connect_hosts, devices);
  return make_group(world, options,
                    [=](const Membership& membership, AddressExchange& addresses, Deadline deadline,
                        const Watch& watch) {
                      const auto& hosts = membership.hosts;
                      const bool on_one_host = std::all_of(
                          hosts.begin(), hosts.end(), [&](int host) { return host == hosts[0]; });
                      return (on_one_host ? connect_devices : connect_hosts)(membership, addresses,
                                                                             deadline, watch);
                    });
}

std::vector<LinkCount> link_counts(const World& world) {
  return link_counts(world.groups()->network());
}

double network_thread_seconds(const World& world) {
  return network_thread_seconds(world.groups()->network()) +
         mpi_thread_seconds(world.groups()->given_network());
}

}  // namespace lockstep
