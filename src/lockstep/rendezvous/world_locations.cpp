#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/rendezvous/member.h"
#include "lockstep/rendezvous/world_locations_internal.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json json_of(const std::optional<int>& number) { return number ? Json(*number) : Json(nullptr); }

std::optional<int> number_of(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<int>());
}

constexpr const char* kSameVersion = "start all ranks with the same version of lockstep";

// What `read` makes of the JSON in `text`, which another rank sent.
template <typename Read>
auto parsed(std::string_view text, const Read& read) {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception& error) {
    throw UsageError(
        fmt::format("what another rank sent about ranks has an invalid format ({}): {}",
                    error.what(), kSameVersion));
  }
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

std::string to_text(const RankFacts& facts) {
  const Json list{facts.identity,
                  facts.address,
                  facts.source,
                  json_of(facts.local_rank),
                  json_of(facts.local_size),
                  json_of(facts.node_rank),
                  json_of(facts.num_nodes)};
  return list.dump(-1, ' ', true, Json::error_handler_t::replace);
}

RankFacts facts_from_text(std::string_view text) {
  return parsed(text, [](const Json& each) -> RankFacts {
    return {each.at(0).get<std::string>(), each.at(1).get<std::string>(),
            each.at(2).get<std::string>(), number_of(each.at(3)),
            number_of(each.at(4)),         number_of(each.at(5)),
            number_of(each.at(6))};
  });
}

std::string ranks_to_text(std::span<const int> ranks) {
  std::string text;
  for (std::size_t begin = 0; begin < ranks.size();) {
    auto end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : " ", ranks[begin]);
    if (end > begin + 1) text += fmt::format("-{}", ranks[end - 1]);
    begin = end;
  }
  return text;
}

std::vector<int> ranks_from_text(std::string_view text) {
  std::vector<int> ranks;
  const auto read = [](std::string_view word, int least) {
    int rank = -1;
    const auto* const end = word.data() + word.size();
    const auto [stopped, error] = std::from_chars(word.data(), end, rank);
    if (error == std::errc{} && stopped == end && rank >= least && rank < kMaxMembers) return rank;
    throw UsageError(fmt::format("a list of ranks is invalid at \"{}\": {}", word, kSameVersion));
  };
  while (!text.empty()) {
    const auto space = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, space);
    const auto dash = word.find('-');
    const int first = read(word.substr(0, dash), ranks.empty() ? 0 : ranks.back() + 1);
    const int last = dash == std::string_view::npos ? first : read(word.substr(dash + 1), first);
    for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return ranks;
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

WorldTable table_of(std::span<const RankFacts> facts, std::vector<int> hosts) {
  const auto says_all = [&](auto field) {
    return std::all_of(facts.begin(), facts.end(),
                       [&](const RankFacts& each) { return (each.*field).has_value(); });
  };
  WorldTable table{.hosts = std::move(hosts)};
  for (const auto& each : facts) table.addresses.push_back(each.address);
  table.knows_local = says_all(&RankFacts::local_rank) && says_all(&RankFacts::local_size);
  table.knows_nodes = says_all(&RankFacts::node_rank) && says_all(&RankFacts::num_nodes);
  return table;
}

// [knows_local, knows_nodes, [[host, address, ranks], …]]. Ranks of one host nearly always have one
// address.
std::string to_text(const WorldTable& table) {
  std::map<std::pair<int, std::string_view>, std::vector<int>> ranks_at;
  for (std::size_t rank = 0; rank < table.hosts.size(); ++rank) {
    ranks_at[{table.hosts[rank], table.addresses[rank]}].push_back(static_cast<int>(rank));
  }
  auto list = Json::array();
  for (const auto& [where, ranks] : ranks_at) {
    list.push_back({where.first, where.second, ranks_to_text(ranks)});
  }
  return Json{table.knows_local, table.knows_nodes, std::move(list)}.dump(
      -1, ' ', true, Json::error_handler_t::replace);
}

WorldTable table_from_text(std::string_view text, int size) {
  return parsed(text, [size](const Json& json) {
    const auto count = static_cast<std::size_t>(size);
    WorldTable table{.hosts = std::vector<int>(count, -1),
                     .addresses = std::vector<std::string>(count),
                     .knows_local = json.at(0).get<bool>(),
                     .knows_nodes = json.at(1).get<bool>()};
    for (const auto& each : json.at(2)) {
      for (const int rank : ranks_from_text(each.at(2).get<std::string>())) {
        if (rank >= size) break;
        table.hosts[static_cast<std::size_t>(rank)] = each.at(0).get<int>();
        table.addresses[static_cast<std::size_t>(rank)] = each.at(1).get<std::string>();
      }
    }
    const auto missing = std::find_if(table.hosts.begin(), table.hosts.end(),
                                      [size](int host) { return host < 0 || host >= size; });
    if (missing == table.hosts.end()) return table;
    throw UsageError(fmt::format("the table of ranks has no host of rank {}: {}",
                                 missing - table.hosts.begin(), kSameVersion));
  });
}

RankLocation locate_rank(int rank, const RankFacts& own, const WorldTable& table) {
  const auto begin = table.hosts.begin();
  const int host = table.hosts[static_cast<std::size_t>(rank)];
  RankLocation location{.host = host,
                        .local_rank = static_cast<int>(std::count(begin, begin + rank, host)),
                        .local_size = static_cast<int>(std::count(begin, table.hosts.end(), host)),
                        .node = host,
                        .num_nodes = 1 + *std::max_element(begin, table.hosts.end())};
  if (table.knows_local) {
    location.local_rank = own.local_rank.value();
    location.local_size = own.local_size.value();
  }
  if (table.knows_nodes) {
    location.node = own.node_rank.value();
    location.num_nodes = own.num_nodes.value();
  }
  return location;
}

}  // namespace lockstep
