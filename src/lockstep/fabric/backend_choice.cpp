#include "lockstep/fabric/backend_choice.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "lockstep/base/error.h"
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

}  // namespace

std::string_view to_string(BackendKind kind) noexcept {
  switch (kind) {
    case BackendKind::shm:
      return "shm";
  }
  return "";
}

BackendChoice choose_backend(const Topology& topology, const BackendOptions& options) {
  const auto size = topology.hosts.size();
  const int num_hosts = num_hosts_of(topology);
  if (num_hosts > 1) {
    throw UsageError(fmt::format(
        "no backend of this version connects several hosts, but the {} ranks are on {} hosts: {}; "
        "start all ranks on one host",
        size, num_hosts, hosts_in_words(topology)));
  }
  if (options.backend) return {*options.backend, "requested"};
  if (size == 1) return {BackendKind::shm, "the group has one rank"};
  return {BackendKind::shm, fmt::format("all {} ranks are on one host", size)};
}

}  // namespace lockstep
