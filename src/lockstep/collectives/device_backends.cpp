#include <algorithm>

#include "lockstep/base/environment.h"
#include "lockstep/collectives/backends_internal.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/gpu/connect.h"
#include "lockstep/gpu/nccl_functions.h"
#include "lockstep/gpu/watcher.h"

namespace lockstep {

std::shared_ptr<Group> make_group_with_devices(const World& world, const GroupOptions& options,
                                               const BackendOptions& backend, Sums sums) {
  DeviceOptions devices;
  devices.backend = backend;
  devices.functions = &cuda_functions;
  devices.nccl = &nccl_functions;
  devices.nccl_reduction = sums == Sums::exact ? NcclReduction::exact : NcclReduction::fast;
  devices.nccl_ratios = nccl_ratio_file(Environment::of_process());
  devices.watcher = &watcher_of_process;
  // The transports of GPU memory connect the ranks of one host.
  const auto connect_hosts = connect_ranks(backend, sums == Sums::fast);
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

}  // namespace lockstep
