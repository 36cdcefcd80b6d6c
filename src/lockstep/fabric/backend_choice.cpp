#include "lockstep/fabric/backend_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/host_plan.h"
#include "lockstep/rendezvous/member.h"

namespace lockstep {
namespace {

// "ranks 0 to 3 at 10.0.0.1; ranks 4 to 7 at 10.0.0.2"
std::string hosts_in_words(const Topology& topology) {
  std::map<int, std::vector<Member>> members;
  std::map<int, std::string> addresses;
  for (std::size_t i = 0; i < topology.hosts.size(); ++i) {
    const int host = topology.hosts[i];
    members[host].push_back({MemberKind::rank, topology.global_ranks[i]});
    addresses.try_emplace(host, topology.addresses[i]);
  }
  std::string words;
  for (const auto& [host, ranks] : members) {
    words +=
        fmt::format("{}{} at {}", words.empty() ? "" : "; ", to_string(ranks), addresses.at(host));
  }
  return words;
}

int num_hosts_of(const Topology& topology) {
  std::map<int, int> ranks_of_host;
  for (const int host : topology.hosts) ++ranks_of_host[host];
  return static_cast<int>(ranks_of_host.size());
}

// What the sizes of the hosts cost: a host with several partial sums sends all of them.
std::string partials_in_words(const Topology& topology) {
  const HostPlan plan(topology.hosts);
  int most = 0;  // the host with the most partial sums
  for (int host = 1; host < plan.num_hosts(); ++host) {
    if (plan.num_partials_of(host) > plan.num_partials_of(most)) most = host;
  }
  const int num_partials = plan.num_partials_of(most);
  if (num_partials == 1) return "";
  return fmt::format(
      "; a host of {} ranks sends {:.1f}× the bytes: equal hosts of 2, 4 or 8 send least",
      plan.ranks_of(most).size(), (num_partials + 1) / 2.0);
}

// Two ranks with the same GPU; nullopt if there are none.
std::optional<std::pair<std::size_t, std::size_t>> find_sharers(const DeviceTopology& topology) {
  for (std::size_t b = 1; b < topology.devices.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (topology.devices[a].uuid == topology.devices[b].uuid) return std::pair{a, b};
    }
  }
  return std::nullopt;
}

// The first rank without a property; nullopt if all have it.
std::optional<int> find_without(const DeviceTopology& topology, bool DeviceFacts::*property) {
  for (std::size_t i = 0; i < topology.devices.size(); ++i) {
    if (!(topology.devices[i].*property)) return topology.global_ranks[i];
  }
  return std::nullopt;
}

std::string sharers_in_words(const DeviceTopology& topology,
                             const std::pair<std::size_t, std::size_t>& sharers) {
  return fmt::format("ranks {} and {} use the same GPU", topology.global_ranks[sharers.first],
                     topology.global_ranks[sharers.second]);
}

// Whether all ranks use one GPU. Only then the mapped memory is that of the own device.
bool is_one_device(const DeviceTopology& topology) {
  return std::all_of(topology.devices.begin(), topology.devices.end(), [&](const auto& device) {
    return device.uuid == topology.devices.front().uuid;
  });
}

}  // namespace

std::string_view to_string(BackendKind kind) noexcept {
  switch (kind) {
    case BackendKind::shm:
      return "shm";
    case BackendKind::tcp:
      return "tcp";
    case BackendKind::hierarchical:
      return "hierarchical";
    case BackendKind::mpi:
      return "mpi";
    case BackendKind::ipc:
      return "ipc";
    case BackendKind::staged:
      return "staged";
    case BackendKind::nccl:
      return "nccl";
  }
  return "";
}

BackendChoice choose_backend(const Topology& topology, const BackendOptions& options) {
  const auto size = topology.hosts.size();
  const int num_hosts = num_hosts_of(topology);
  // Several hosts, one of them with several ranks.
  const bool shares_hosts = num_hosts > 1 && static_cast<std::size_t>(num_hosts) < size;
  const auto mpi = [&](const std::string& reason) {
    return BackendChoice{BackendKind::mpi,
                         reason + (shares_hosts ? "; the ranks of one host share memory" +
                                                      partials_in_words(topology)
                                                : ""),
                         shares_hosts};
  };
  if (options.backend == BackendKind::mpi) return mpi("requested");
  if (options.backend == BackendKind::tcp || options.backend == BackendKind::hierarchical) {
    return {*options.backend, "requested", options.backend == BackendKind::hierarchical};
  }
  if (num_hosts > 1) {
    if (options.backend == BackendKind::shm) {
      throw UsageError(fmt::format(
          "backend shm connects the ranks of one host, but the {} ranks are on {} hosts: {}; "
          "request hierarchical, tcp or none",
          size, num_hosts, hosts_in_words(topology)));
    }
    const auto reason = fmt::format("the {} ranks are on {} hosts", size, num_hosts);
    if (topology.has_mpi) return mpi(reason + " and have an MPI communicator");
    if (!shares_hosts) return {BackendKind::tcp, reason + ", one on each"};
    return {BackendKind::hierarchical, reason + partials_in_words(topology), true};
  }
  if (options.backend == BackendKind::shm) return {BackendKind::shm, "requested"};
  if (size == 1) return {BackendKind::shm, "the group has one rank"};
  return {BackendKind::shm, fmt::format("all {} ranks are on one host", size)};
}

BackendChoice choose_device_backend(const DeviceTopology& topology, const BackendOptions& options) {
  const auto sharers = find_sharers(topology);
  const auto cannot_map = find_without(topology, &DeviceFacts::maps_memory);
  const auto without_nccl = find_without(topology, &DeviceFacts::has_nccl);
  if (options.backend) {
    const auto refuse = [&](const std::string& why) {
      throw UsageError(
          fmt::format("backend {} was requested, but {}", to_string(*options.backend), why));
    };
    switch (*options.backend) {
      case BackendKind::shm:
      case BackendKind::tcp:
      case BackendKind::hierarchical:
      case BackendKind::mpi:
        refuse("it does not support GPU memory; request ipc, staged or nccl, or none");
        break;
      case BackendKind::ipc:
        if (!is_one_device(topology))
          refuse("the ranks use different GPUs; request nccl or staged");
        if (cannot_map)
          refuse(fmt::format("the GPU of rank {} refuses CUDA IPC; request staged", *cannot_map));
        break;
      case BackendKind::staged:
        break;
      case BackendKind::nccl:
        if (sharers) refuse(sharers_in_words(topology, *sharers) + "; request ipc or staged");
        if (without_nccl)
          refuse(fmt::format("rank {} has no NCCL; see docs/gpu.md", *without_nccl));
        break;
    }
    return {*options.backend, "requested"};
  }
  if (!sharers) {
    if (!without_nccl) return {BackendKind::nccl, "every rank has its own GPU"};
    return {BackendKind::staged, fmt::format("rank {} has no NCCL", *without_nccl)};
  }
  if (!is_one_device(topology)) {
    return {BackendKind::staged, sharers_in_words(topology, *sharers) + ", others use other GPUs"};
  }
  if (!cannot_map) {
    return {BackendKind::ipc, fmt::format("all {} ranks use one GPU, in turns unless MPS runs",
                                          topology.devices.size())};
  }
  return {BackendKind::staged,
          fmt::format("all {} ranks use one GPU, which refuses CUDA IPC to rank {}",
                      topology.devices.size(), *cannot_map)};
}

}  // namespace lockstep
