// The computers of a job and the links between its ranks, as a value. `lockstep bench link`
// measures it and writes it as a file, which can be edited and read back; a test can describe any
// layout.
//
//   {"format": "lockstep-cluster", "version": 1,
//    "hosts": [{"name": "node0", "address": "10.0.0.1", "ranks": [0, 1],
//               "numa_nodes": [[0, 1], [2, 3]], "devices": ["NVIDIA H200"]}, …],
//    "links": [{"ranks": [0, 2], "class": "ethernet",
//               "measured": {"latency_us": 21.5, "bandwidth": 1.17e9, "back_bandwidth": 1.16e9,
//                            "stripes": 4, "striped_bandwidth": 1.17e9, "retransmits": 0}}, …]}
//
// A NUMA node is a list of processors, a device a name. Bandwidths are bytes per second, from the
// first rank to the second one and back. measured may be absent. A pair without a link counts as an
// ethernet link that has not been measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/machine/links.h"

namespace lockstep {

struct ClusterHost {
  std::string name = {};
  std::string address = {};
  std::vector<int> ranks = {};                    // ascending
  std::vector<std::vector<int>> numa_nodes = {};  // processors
  std::vector<std::string> devices = {};

  friend bool operator==(const ClusterHost&, const ClusterHost&) = default;
};

struct LinkFigures {
  double latency = 0;            // seconds, in one direction
  double bandwidth = 0;          // bytes per second, by one connection
  double back_bandwidth = 0;     // the same in the other direction
  int stripes = 1;               // connections at the same time
  double striped_bandwidth = 0;  // by these
  std::int64_t retransmits = 0;  // TCP segments, both directions

  friend bool operator==(const LinkFigures&, const LinkFigures&) = default;
};

struct ClusterLink {
  int first = 0;
  int second = 0;  // above first
  LinkClass link_class = LinkClass::ethernet;
  std::optional<LinkFigures> measured = {};

  friend bool operator==(const ClusterLink&, const ClusterLink&) = default;
};

struct Cluster {
  std::vector<ClusterHost> hosts = {};
  std::vector<ClusterLink> links = {};

  [[nodiscard]] int num_ranks() const noexcept;
  /// The link between two ranks; one that has not been measured if none is listed.
  [[nodiscard]] ClusterLink link(int a, int b) const noexcept;

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// The bytes per chunk of an array of `count` elements on `link`: measured_chunk() if the link was
/// measured, with the slower direction, otherwise unmeasured_chunk().
[[nodiscard]] std::size_t chunk_bytes(const ClusterLink& link, std::int64_t count,
                                      std::size_t element_bytes);

[[nodiscard]] std::string to_json(const Cluster& cluster);
/// Parses the format above. Throws UsageError for any other text; its message starts with `origin`
/// and names the field.
[[nodiscard]] Cluster cluster_from_json(std::string_view json, std::string_view origin);

/// Creates or replaces the file atomically. Throws SystemError.
void write_cluster(const std::string& path, const Cluster& cluster);
/// Reads the file. Throws as read_machine() does (machine.h).
[[nodiscard]] Cluster read_cluster(const std::string& path);

}  // namespace lockstep
