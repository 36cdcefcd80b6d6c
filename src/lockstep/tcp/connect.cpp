#include "lockstep/tcp/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/network_planes.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/rendezvous/idle_cores.h"
#include "lockstep/tcp/network_internal.h"

namespace lockstep {
namespace {

void expect_reachable(const Membership& membership) {
  for (std::size_t rank = 0; rank < membership.hosts.size(); ++rank) {
    if (!is_loopback(membership.addresses[rank])) continue;
    for (std::size_t other = 0; other < membership.hosts.size(); ++other) {
      if (membership.hosts[other] == membership.hosts[rank]) continue;
      throw UsageError(fmt::format(
          "rank {} has the loopback address {}, which rank {} on another host cannot reach: name "
          "an interface of the network with --interface or LOCKSTEP_INTERFACE, or give "
          "--rendezvous an address of the network, not localhost or a name that this machine maps "
          "to a loopback address (`getent hosts NAME`)",
          membership.global_ranks[rank], membership.addresses[rank],
          membership.global_ranks[other]));
    }
  }
}

// At the address of this rank, and at one of each further interface of the settings.
std::vector<Listener> listen(const std::string& first, const NetworkSettings& settings) {
  std::vector<std::string> addresses{first};
  const auto names = settings.interfaces();
  for (std::size_t i = 1; i < names.size(); ++i) {
    addresses.push_back(choose_address(names[i], interface_addresses(), first));
  }
  std::vector<Listener> listeners;
  for (const auto& address : addresses) {
    listeners.push_back(settings.ports ? Listener::tcp(address, *settings.ports)
                                       : Listener::tcp(address));
  }
  return listeners;
}

// Those of the settings; otherwise those that the measured link needs.
int stripes_of(const TcpOptions& options, const NetworkSettings& settings) {
  const auto unset = settings.stripes > 0 ? settings.stripes : options.exchange.link.stripes;
  const int stripes = options.stripes.value_or(unset);
  expect_stripes("the number of stripes", stripes);
  return stripes;
}

// Beside it, the address of a rank within its host must fit into an exchange.
std::string own_address_of(const TcpNetwork& network, std::uint64_t end) {
  constexpr std::size_t kMostBytes = AddressExchange::kMaxBytes - 64;
  auto text = to_string(network.address_of(end));
  if (text.size() <= kMostBytes) return text;
  throw UsageError(
      fmt::format("the addresses of this rank have {} characters, at most {} fit: "
                  "name fewer interfaces with --interface or LOCKSTEP_INTERFACE",
                  text.size(), kMostBytes));
}

std::shared_ptr<TcpNetwork> network_of(const Membership& membership, const TcpOptions& options) {
  const auto index = static_cast<std::size_t>(membership.rank);
  auto& kept = membership.registry->network();
  if (!kept) {
    // A world of one rank has no secret and admits no process.
    const auto secret = membership.secret ? membership.secret->copy() : Secret::random();
    const auto& settings = membership.registry->network_settings();
    const auto& address = membership.addresses[index];
    kept = std::make_shared<TcpNetwork>(
        membership.global_ranks[index], listen(address, settings), secret,
        membership.registry->groups(), options.heartbeat.value_or(settings.heartbeat),
        options.encrypts_data.value_or(settings.encrypts) ? DataProtection::encrypted
        : options.checks_data                             ? DataProtection::checksums
                                                          : DataProtection::none,
        stripes_of(options, settings));
  }
  return std::static_pointer_cast<TcpNetwork>(kept);
}

// The least stage holds a cache line for each rank.
HostPlanes connect_host(Membership membership, AddressExchange& addresses, const std::string& own,
                        std::size_t header_bytes, Deadline deadline, const Watch& watch,
                        const TcpOptions& options) {
  membership.hosts = hosts_of(membership, options.host_of);
  const HostMemoryBytes bytes{.stage = std::max(options.stage_bytes, membership.hosts.size() * 64),
                              .headers = header_bytes};
  return connect_within_host(options.within_host, membership, addresses, own, bytes, deadline,
                             watch);
}

// As many as cores are idle, if there are several stripes.
int stripe_threads(const Membership& membership, const std::vector<RankAddress>& addresses,
                   const TcpOptions& options) {
  if (options.stripe_threads) {
    expect_stripes("the number of threads for stripes", *options.stripe_threads);
    return *options.stripe_threads;
  }
  const auto& settings = membership.registry->network_settings();
  const bool has_stripes = stripes_of(options, settings) > 1 ||
                           std::any_of(addresses.begin(), addresses.end(), [](const auto& address) {
                             return address.endpoints.size() > 1;
                           });
  if (!has_stripes) return 1;
  std::vector<ProcessIdentity> of_host;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    const auto own = static_cast<std::size_t>(membership.rank);
    if (membership.hosts[rank] == membership.hosts[own]) of_host.push_back(addresses[rank].process);
  }
  return std::max(1, idle_cores(of_host, Environment::of_process()));
}

// Connects this rank to the ranks `first`, and to each other one when they exchange data.
void connect_ranks(TcpNetwork& network, const Membership& membership,
                   const std::vector<RankAddress>& addresses, const std::vector<int>& first,
                   Deadline deadline, const Watch& watch) {
  const auto& here = addresses[static_cast<std::size_t>(membership.rank)].endpoints;
  for (int rank = 0; rank < membership.size(); ++rank) {
    if (rank == membership.rank) continue;
    auto address = addresses[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < address.endpoints.size(); ++i) {
      auto& host = address.endpoints[i].host;
      host = rescope(host, here[i % here.size()].host);
    }
    const int peer = membership.global_ranks[static_cast<std::size_t>(rank)];
    if (std::find(first.begin(), first.end(), rank) != first.end()) {
      network.connect(peer, address, deadline, watch);
    } else {
      network.introduce(peer, address);
    }
  }
}

Planes connect(const Membership& membership, AddressExchange& addresses, Deadline deadline,
               const Watch& watch, const TcpOptions& options) {
  expect_reachable(membership);
  const auto network = network_of(membership, options);
  NetworkPlanes planes(
      network, options.within_host ? "hierarchical" : "tcp", membership.rank,
      membership.global_ranks,
      {.inline_bytes = options.inline_bytes,
       .exchange = options.exchange,
       .most_direct = options.most_direct,
       .hosts = options.within_host ? hosts_of(membership, options.host_of) : std::vector<int>()});
  NetworkPlanes::Facts facts;
  const auto own_address = own_address_of(*network, planes.end());
  if (options.within_host) {
    facts.host = connect_host(membership, addresses, own_address, planes.header_bytes(), deadline,
                              watch, options);
  } else {
    addresses.exchange(own_address);
  }
  std::vector<RankAddress> all;
  std::vector<ProcessIdentity> processes;
  std::vector<std::uint64_t> ends;
  for (int rank = 0; rank < membership.size(); ++rank) {
    all.push_back(parse_rank_address(
        rank == membership.rank ? own_address : network_address_in(addresses.of(rank))));
    processes.push_back(all.back().process);
    ends.push_back(all.back().end);
  }
  network->allow_threads(stripe_threads(membership, all, options));
  connect_ranks(*network, membership, all, planes.first_peers(), deadline, watch);
  planes.set_ends(std::move(ends));
  add_processes(facts, membership, processes);
  return planes.finish(std::move(facts));
}

}  // namespace

Connect connect_by_tcp(const TcpOptions& options) {
  return [options](const Membership& membership, AddressExchange& addresses, Deadline deadline,
                   const Watch& watch) {
    return connect(membership, addresses, deadline, watch, options);
  };
}

}  // namespace lockstep
