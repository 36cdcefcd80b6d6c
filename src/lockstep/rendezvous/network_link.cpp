#include "lockstep/rendezvous/network_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lockstep/machine/cluster.h"
#include "lockstep/machine/links.h"

namespace lockstep {
namespace {

int host_of(const Cluster& cluster, int rank) {
  for (std::size_t host = 0; host < cluster.hosts.size(); ++host) {
    const auto& ranks = cluster.hosts[host].ranks;
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return static_cast<int>(host);
  }
  return -1;
}

}  // namespace

std::string to_string(const NetworkLink& link) {
  auto text = fmt::format("{:.3g} us, {:.3g} GB/s, {}", 1e6 * link.latency, link.bandwidth / 1e9,
                          link.is_measured ? "measured" : "assumed");
  if (!link.is_measured && link.link_class != LinkClass::ethernet) {
    text += fmt::format(", {}", to_string(link.link_class));
  }
  return text;
}

NetworkLink slowest_link_of(const Cluster& cluster) noexcept {
  NetworkLink slowest;
  std::optional<LinkClass> lowest;
  for (const auto& link : cluster.links) {
    if (host_of(cluster, link.first) == host_of(cluster, link.second)) continue;
    lowest = std::min(lowest.value_or(link.link_class), link.link_class);
    if (!link.measured) continue;
    const auto rate = std::min(link.measured->bandwidth, link.measured->back_bandwidth);
    if (!(rate > 0) || !(link.measured->latency > 0)) continue;
    slowest.bandwidth = slowest.is_measured ? std::min(slowest.bandwidth, rate) : rate;
    slowest.latency = slowest.is_measured ? std::max(slowest.latency, link.measured->latency)
                                          : link.measured->latency;
    slowest.is_measured = true;
    const auto& found = *link.measured;
    slowest.stripes = std::max(
        slowest.stripes, advised_stripes(found.bandwidth, found.striped_bandwidth, found.stripes));
  }
  slowest.link_class = lowest.value_or(LinkClass::ethernet);
  return slowest;
}

NetworkLink network_link(const Environment& environment) {
  const auto file = environment.find("LOCKSTEP_LINKS");
  return file ? slowest_link_of(read_cluster(*file)) : NetworkLink{};
}

}  // namespace lockstep
