#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/rendezvous/world_locations_internal.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json json_of(const std::optional<int>& number) { return number ? Json(*number) : Json(nullptr); }

std::optional<int> number_of(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<int>());
}

}  // namespace

RankFacts facts_of(const Placement& placement, const std::string& identity,
                   const std::string& address) {
  return {identity,
          address,
          std::string(to_string(placement.source)),
          placement.local_rank,
          placement.local_size,
          placement.node_rank,
          placement.num_nodes};
}

std::string to_text(std::span<const RankFacts> facts) {
  auto list = Json::array();
  for (const auto& each : facts) {
    list.push_back({each.identity, each.address, each.source, json_of(each.local_rank),
                    json_of(each.local_size), json_of(each.node_rank), json_of(each.num_nodes)});
  }
  return list.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::vector<RankFacts> facts_from_text(std::string_view text) {
  try {
    std::vector<RankFacts> facts;
    for (const auto& each : Json::parse(text)) {
      facts.push_back({each.at(0).get<std::string>(), each.at(1).get<std::string>(),
                       each.at(2).get<std::string>(), number_of(each.at(3)), number_of(each.at(4)),
                       number_of(each.at(5)), number_of(each.at(6))});
    }
    return facts;
  } catch (const Json::exception& error) {
    throw UsageError(
        fmt::format("the placements that ranks sent have an invalid format ({}): start all ranks "
                    "with the same version of lockstep",
                    error.what()));
  }
}

void expect_no_contradiction(std::span<const RankFacts> facts) {
  std::map<std::pair<int, int>, std::size_t> ranks_at;  // by node and local rank
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    const auto& each = facts[rank];
    if (each.source != facts[0].source) {
      throw UsageError(
          fmt::format("rank 0 was placed by {}, rank {} by {}: start all ranks with "
                      "the same launcher",
                      facts[0].source, rank, each.source));
    }
    if (each.num_nodes != facts[0].num_nodes) {
      const auto words = [](const std::optional<int>& number) {
        return number ? fmt::format("{} nodes", *number) : "no number of nodes";
      };
      throw UsageError(
          fmt::format("{} gave rank 0 {}, but rank {} {}: start all ranks of the job "
                      "with the same number of nodes",
                      each.source, words(facts[0].num_nodes), rank, words(each.num_nodes)));
    }
    if (!each.node_rank || !each.local_rank) continue;
    const auto [other, added] = ranks_at.try_emplace({*each.node_rank, *each.local_rank}, rank);
    if (added) continue;
    throw UsageError(
        fmt::format("{} gave ranks {} and {} the same local rank {} of node {}: check "
                    "its node numbers",
                    each.source, other->second, rank, *each.local_rank, *each.node_rank));
  }
}

std::vector<std::vector<int>> groups_by_identity(std::span<const RankFacts> facts) {
  std::map<std::string_view, std::vector<int>> by_identity;
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    by_identity[facts[rank].identity].push_back(static_cast<int>(rank));
  }
  std::vector<std::vector<int>> groups;
  for (auto& [identity, ranks] : by_identity) groups.push_back(std::move(ranks));
  std::sort(groups.begin(), groups.end());
  return groups;
}

std::vector<int> number_hosts(int size, std::span<const std::vector<int>> proven) {
  std::vector<int> lowest(static_cast<std::size_t>(size));  // of each rank's host
  for (int rank = 0; rank < size; ++rank) lowest[static_cast<std::size_t>(rank)] = rank;
  for (const auto& group : proven) {
    for (const int rank : group) lowest.at(static_cast<std::size_t>(rank)) = group.front();
  }
  std::map<int, int> numbers;
  for (const int rank : lowest) numbers.try_emplace(rank, 0);
  int next = 0;
  for (auto& [rank, number] : numbers) number = next++;
  std::vector<int> hosts;
  hosts.reserve(lowest.size());
  for (const int rank : lowest) hosts.push_back(numbers.at(rank));
  return hosts;
}

std::vector<RankLocation> locate_ranks(std::span<const RankFacts> facts,
                                       std::span<const int> hosts) {
  std::map<int, int> sizes;  // of hosts
  std::vector<RankLocation> locations;
  for (const int host : hosts) locations.push_back({.host = host, .local_rank = sizes[host]++});
  const auto says_all = [&](auto field) {
    return std::all_of(facts.begin(), facts.end(),
                       [&](const RankFacts& each) { return (each.*field).has_value(); });
  };
  const bool local = says_all(&RankFacts::local_rank) && says_all(&RankFacts::local_size);
  const bool nodes = says_all(&RankFacts::node_rank) && says_all(&RankFacts::num_nodes);
  for (std::size_t rank = 0; rank < locations.size(); ++rank) {
    auto& location = locations[rank];
    location.local_rank = local ? *facts[rank].local_rank : location.local_rank;
    location.local_size = local ? *facts[rank].local_size : sizes.at(location.host);
    location.node = nodes ? *facts[rank].node_rank : location.host;
    location.num_nodes = nodes ? *facts[rank].num_nodes : static_cast<int>(sizes.size());
  }
  return locations;
}

}  // namespace lockstep
