#include "lockstep/fabric/host_planes.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr char kSeparator = '|';

// Each rank publishes the address in the network, then that within its host.
class HostAddressExchange final : public AddressExchange {
 public:
  HostAddressExchange(AddressExchange& all, std::string network_address, std::vector<int> ranks)
      : all_(all), network_address_(std::move(network_address)), ranks_(std::move(ranks)) {}

  void exchange(const std::string& own) override {
    all_.exchange(network_address_ + kSeparator + own);
  }
  [[nodiscard]] std::string of(int rank) override {
    const auto both = all_.of(ranks_[static_cast<std::size_t>(rank)]);
    return both.substr(std::min(both.size(), both.find(kSeparator) + 1));
  }

 private:
  AddressExchange& all_;
  std::string network_address_;
  std::vector<int> ranks_;  // of the group, by rank of the host
};

}  // namespace

std::vector<int> hosts_of(const Membership& membership,
                          const std::function<int(int global_rank)>& host_of) {
  auto hosts = membership.hosts;
  for (std::size_t i = 0; host_of && i < hosts.size(); ++i) {
    hosts[i] = host_of(membership.global_ranks[i]);
  }
  return hosts;
}

HostPlanes connect_within_host(const Connect& within, const Membership& membership,
                               AddressExchange& addresses, const std::string& network_address,
                               const HostMemoryBytes& bytes, Deadline deadline,
                               const Watch& watch) {
  const auto own = static_cast<std::size_t>(membership.rank);
  auto here = membership;
  here.global_ranks.clear();
  here.hosts.clear();
  here.addresses.clear();
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < membership.hosts.size(); ++rank) {
    if (membership.hosts[rank] != membership.hosts[own]) continue;
    if (rank == own) here.rank = static_cast<int>(ranks.size());
    ranks.push_back(static_cast<int>(rank));
    here.global_ranks.push_back(membership.global_ranks[rank]);
    here.hosts.push_back(membership.hosts[rank]);
    here.addresses.push_back(membership.addresses[rank]);
  }
  HostAddressExchange both(addresses, network_address, std::move(ranks));
  HostPlanes host;
  host.hosts = membership.hosts;
  host.stage_bytes = bytes.stage;
  host.planes = within(here, both, deadline, watch);
  host.stage = host.planes.data->allocate(2 * bytes.stage, {}, deadline, watch);
  if (bytes.headers > 0) {
    host.headers = host.planes.data->allocate(bytes.headers, {}, deadline, watch);
  }
  return host;
}

std::string network_address_in(const std::string& exchanged) {
  return exchanged.substr(0, exchanged.find(kSeparator));
}

}  // namespace lockstep
