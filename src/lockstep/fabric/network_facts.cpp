// What a rank knows of the processes of the others.
#include <fmt/format.h>
#include <sched.h>

#include "lockstep/fabric/network_planes.h"
#include "lockstep/rendezvous/idle_cores.h"

namespace lockstep {
namespace {

int num_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace

void add_processes(NetworkPlanes::Facts& facts, const Membership& membership,
                   const std::vector<ProcessIdentity>& processes) {
  const auto own = static_cast<std::size_t>(membership.rank);
  const auto& hosts = membership.hosts;
  // Bound ranks of a host may use other cores than this one.
  std::vector<ProcessIdentity> of_host;
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    if (hosts[rank] == hosts[own]) of_host.push_back(processes[rank]);
  }
  facts.shares_cores = num_cores() < num_sharers(of_host);
  // The kernel describes the processes of this host only.
  auto known = processes;
  for (std::size_t rank = 0; rank < known.size(); ++rank) {
    if (hosts[rank] != hosts[own]) known[rank] = processes[own];
  }
  const auto peers = std::make_shared<const Peers>(known, membership.registry->watches());
  facts.describe = [peers, processes, hosts, own, where = membership.addresses](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (hosts[index] == hosts[own]) return peers->describe(rank);
    return fmt::format("pid {} at {}", processes[index].process, where[index]);
  };
}

}  // namespace lockstep
