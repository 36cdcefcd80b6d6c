#include "lockstep/machine/cluster.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "lockstep/base/whole_file.h"
#include "lockstep/machine/json_reader_internal.h"

namespace lockstep {
namespace {

using Json = JsonReader::Json;

constexpr std::int64_t kMostRanks = 1 << 16;
constexpr std::int64_t kMostProcessors = 1 << 20;
constexpr std::int64_t kMostRetransmits = std::int64_t{1} << 50;
constexpr std::array kClasses{LinkClass::ethernet, LinkClass::infiniband, LinkClass::nvlink};

std::vector<int> integers(const JsonReader& reader, const Json& json, std::string_view name,
                          std::int64_t most) {
  std::vector<int> numbers;
  for (const auto& number : reader.list(json, name)) {
    numbers.push_back(
        static_cast<int>(reader.integer(number, fmt::format("a number of {}", name), 0, most - 1)));
  }
  return numbers;
}

ClusterHost host_of(const JsonReader& reader, const Json& json) {
  reader.check_fields(json, "a host of hosts",
                      {"name", "address", "ranks", "numa_nodes", "devices"});
  ClusterHost host;
  host.name = reader.text(reader.at(json, "name"), "name of hosts");
  host.address = reader.text(reader.at(json, "address"), "address of hosts");
  host.ranks = integers(reader, reader.at(json, "ranks"), "ranks of hosts", kMostRanks);
  std::ranges::sort(host.ranks);
  for (const auto& node : reader.list(reader.at(json, "numa_nodes"), "numa_nodes of hosts")) {
    host.numa_nodes.push_back(integers(reader, node, "numa_nodes of hosts", kMostProcessors));
  }
  for (const auto& device : reader.list(reader.at(json, "devices"), "devices of hosts")) {
    host.devices.push_back(reader.text(device, "a device of hosts"));
  }
  return host;
}

double above_zero(const JsonReader& reader, const Json& object, const std::string& field) {
  (void)reader.at(object, field);
  return *reader.positive(object, field);
}

LinkFigures figures_of(const JsonReader& reader, const Json& json) {
  reader.check_fields(
      json, "measured of links",
      {"latency_us", "bandwidth", "back_bandwidth", "stripes", "striped_bandwidth", "retransmits"});
  LinkFigures figures;
  figures.latency = above_zero(reader, json, "latency_us") / 1e6;
  figures.bandwidth = above_zero(reader, json, "bandwidth");
  figures.back_bandwidth = above_zero(reader, json, "back_bandwidth");
  figures.stripes =
      static_cast<int>(reader.integer(reader.at(json, "stripes"), "stripes of links", 1, 1024));
  figures.striped_bandwidth = above_zero(reader, json, "striped_bandwidth");
  figures.retransmits =
      reader.integer(reader.at(json, "retransmits"), "retransmits of links", 0, kMostRetransmits);
  return figures;
}

ClusterLink link_of(const JsonReader& reader, const Json& json, int num_ranks) {
  reader.check_fields(json, "a link of links", {"ranks", "class", "measured"});
  const auto ranks = integers(reader, reader.at(json, "ranks"), "ranks of links", kMostRanks);
  if (ranks.size() != 2 || ranks[0] >= ranks[1] || ranks[1] >= num_ranks) {
    reader.refuse("ranks of links", "two ranks of hosts, the lower one first");
  }
  const auto word = reader.text(reader.at(json, "class"), "class of links");
  const auto found =
      std::ranges::find_if(kClasses, [&](LinkClass each) { return to_string(each) == word; });
  if (found == kClasses.end()) {
    reader.refuse("class of links", "one of ethernet, infiniband, nvlink");
  }
  ClusterLink link{.first = ranks[0], .second = ranks[1], .link_class = *found};
  const auto measured = json.find("measured");
  if (measured != json.end()) link.measured = figures_of(reader, *measured);
  return link;
}

// Every rank from 0 on is in one host.
void expect_all_ranks(const JsonReader& reader, const Cluster& cluster) {
  std::set<int> seen;
  for (const auto& host : cluster.hosts) {
    for (const int rank : host.ranks) {
      if (!seen.insert(rank).second) {
        reader.refuse(fmt::format("rank {} of hosts", rank), "listed only once");
      }
    }
  }
  if (seen.empty() || *seen.rbegin() + 1 != static_cast<int>(seen.size())) {
    reader.refuse("ranks of hosts", "all ranks from 0 on");
  }
}

}  // namespace

int Cluster::num_ranks() const noexcept {
  std::size_t count = 0;
  for (const auto& host : hosts) count += host.ranks.size();
  return static_cast<int>(count);
}

ClusterLink Cluster::link(int a, int b) const noexcept {
  const auto [first, second] = std::minmax(a, b);
  for (const auto& each : links) {
    if (each.first == first && each.second == second) return each;
  }
  return {.first = first, .second = second};
}

std::size_t chunk_bytes(const ClusterLink& link, std::int64_t count, std::size_t element_bytes) {
  if (!link.measured) {
    return static_cast<std::size_t>(unmeasured_chunk(count, link.link_class)) * element_bytes;
  }
  return measured_chunk(static_cast<std::size_t>(count) * element_bytes, link.measured->latency,
                        std::min(link.measured->bandwidth, link.measured->back_bandwidth));
}

std::string to_json(const Cluster& cluster) {
  Json hosts = Json::array();
  for (const auto& host : cluster.hosts) {
    hosts.push_back({{"name", host.name},
                     {"address", host.address},
                     {"ranks", host.ranks},
                     {"numa_nodes", host.numa_nodes},
                     {"devices", host.devices}});
  }
  Json links = Json::array();
  for (const auto& link : cluster.links) {
    Json json{{"ranks", {link.first, link.second}}, {"class", to_string(link.link_class)}};
    if (link.measured) {
      json["measured"] = {{"latency_us", link.measured->latency * 1e6},
                          {"bandwidth", link.measured->bandwidth},
                          {"back_bandwidth", link.measured->back_bandwidth},
                          {"stripes", link.measured->stripes},
                          {"striped_bandwidth", link.measured->striped_bandwidth},
                          {"retransmits", link.measured->retransmits}};
    }
    links.push_back(std::move(json));
  }
  const Json json{{"format", "lockstep-cluster"},
                  {"version", 1},
                  {"hosts", std::move(hosts)},
                  {"links", std::move(links)}};
  // Names are text of the machines; bytes that are not valid UTF-8 must not throw here.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Cluster cluster_from_json(std::string_view text, std::string_view origin) {
  const JsonReader reader(origin);
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) reader.refuse("the text", "JSON");
  reader.check_fields(json, "the cluster", {"format", "version", "hosts", "links"});
  if (reader.text(reader.at(json, "format"), "format") != "lockstep-cluster") {
    reader.refuse("format", "\"lockstep-cluster\"");
  }
  (void)reader.integer(reader.at(json, "version"), "version", 1, 1);
  Cluster cluster;
  for (const auto& host : reader.list(reader.at(json, "hosts"), "hosts")) {
    cluster.hosts.push_back(host_of(reader, host));
  }
  expect_all_ranks(reader, cluster);
  std::set<std::pair<int, int>> seen;
  for (const auto& link : reader.list(reader.at(json, "links"), "links")) {
    cluster.links.push_back(link_of(reader, link, cluster.num_ranks()));
    const auto& added = cluster.links.back();
    if (!seen.insert({added.first, added.second}).second) {
      reader.refuse(fmt::format("the link of ranks {} and {}", added.first, added.second),
                    "listed only once");
    }
  }
  return cluster;
}

void write_cluster(const std::string& path, const Cluster& cluster) {
  write_whole(path, to_json(cluster));
}

Cluster read_cluster(const std::string& path) {
  return cluster_from_json(read_regular_file(path), path);
}

}  // namespace lockstep
