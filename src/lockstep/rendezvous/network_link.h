// The link between the hosts of a job, as algorithms and sizes are chosen by it. Measured by
// `lockstep bench link --json FILE`, if LOCKSTEP_LINKS names that file; otherwise assumed. Every
// rank of a group must have the same value.
#pragma once

#include <string>

#include "lockstep/base/environment.h"

namespace lockstep {

struct Cluster;        // machine/cluster.h
enum class LinkClass;  // machine/links.h; the first is ethernet

/// The defaults are those of 10 Gbit/s Ethernet, not measured.
struct NetworkLink {
  double latency = 25e-6;     // seconds until a small message has arrived and woken its receiver
  double message = 2e-6;      // seconds in which a rank prepares a message
  double bandwidth = 1.25e9;  // bytes per second in one direction
  bool is_measured = false;
  int stripes = 1;            // connections that are needed to use the link
  LinkClass link_class = {};  // if it was not measured: how data are divided (block_bytes)

  friend bool operator==(const NetworkLink&, const NetworkLink&) = default;
};

/// "25 us, 1.25 GB/s, assumed".
[[nodiscard]] std::string to_string(const NetworkLink& link);

/// The slowest of the measured links between different hosts: its rate in the slower direction, and
/// the highest latency. Several stripes, if any link needs them. Assumed if there is none, with the
/// lowest class that the file states for a link between hosts.
[[nodiscard]] NetworkLink slowest_link_of(const Cluster& cluster) noexcept;

/// Reads the file that LOCKSTEP_LINKS names. Throws UsageError if it is invalid, SystemError if it
/// cannot be read.
[[nodiscard]] NetworkLink network_link(const Environment& environment);

}  // namespace lockstep
