// How the ranks of a job use the network between their hosts. `lockstep run` passes the settings to
// its ranks in variables; under another launcher the user sets these:
//   LOCKSTEP_INTERFACE   the address of a rank: the name of an interface, an address or a network;
//                        several, separated by commas: data use all of them
//   LOCKSTEP_PORTS       the ports at which ranks listen: 40000-40100
//   LOCKSTEP_HEARTBEAT   seconds without an answer after which a rank is lost: 3
//   LOCKSTEP_ENCRYPT     1: data between hosts are encrypted; 0, the default: checked only
//   LOCKSTEP_STRIPES     data connections per pair of ranks: 4
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/net/port_range.h"

namespace lockstep {

struct NetworkSettings {
  std::string interface = {};           // empty: the address that reached the store; see above
  std::optional<PortRange> ports = {};  // nullopt: any free port
  std::chrono::milliseconds heartbeat{3'000};
  bool encrypts = false;  // data; messages always are
  int stripes = 0;        // 0: by the measured link, otherwise one; at least one per interface

  /// The names in `interface`; empty if there is none.
  [[nodiscard]] std::vector<std::string> interfaces() const;

  friend bool operator==(const NetworkSettings&, const NetworkSettings&) = default;
};

/// Throws UsageError, which names the variable, for an invalid value.
[[nodiscard]] NetworkSettings network_settings(const Environment& environment);

/// The variables from which network_settings() reads the same; defaults are left out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> variables_of(
    const NetworkSettings& settings);

/// Throws UsageError, which begins with `name`, for a heartbeat that is not from 0.1 s to one day.
void expect_heartbeat(const std::string& name, std::chrono::milliseconds heartbeat);
/// The same for stripes that are not from 1 to kMaxStripes.
void expect_stripes(const std::string& name, int stripes);

constexpr int kMaxStripes = 16;

}  // namespace lockstep
