// The results of `lockstep bench link`: a table for people and matrices as SVG. The JSON is that of
// the cluster (machine/cluster.h). Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/machine/cluster.h"

namespace lockstep::cli {

/// Hosts, one line per pair, and advice. Lines have at most 100 columns.
[[nodiscard]] std::string link_table(const Cluster& cluster, std::string_view congestion_control);

/// Three matrices: rate by one connection, by several, and latency.
[[nodiscard]] std::string link_svg(const Cluster& cluster);

}  // namespace lockstep::cli
