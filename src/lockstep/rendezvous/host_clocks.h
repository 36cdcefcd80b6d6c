// Relates the steady clocks of hosts: each host counts from its own start. Needed to compare times
// of ranks on different hosts.
#pragma once

#include <chrono>
#include <functional>

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// Add `offset` to a time of this host's steady_clock to get that of the host of rank 0. The true
/// offset differs by at most `error`, whatever the delays of the network are.
struct HostClock {
  std::chrono::nanoseconds offset{0};
  std::chrono::nanoseconds error{0};
};

/// Reads a steady clock, as nanoseconds since its epoch.
using ReadClock = std::function<std::chrono::nanoseconds()>;
[[nodiscard]] std::chrono::nanoseconds read_steady_clock();

/// Measures the offset by messages through the job's store; a few milliseconds per host. On one
/// host it is exactly 0 and nothing is sent.
/// Collective: every rank of `world` calls this, once per `name`. Returns when this rank knows its
/// offset. Throws PeerError if rank 0, or the lowest rank of this host, is lost or late. Tests give
/// another clock.
[[nodiscard]] HostClock align_clocks(const World& world, const std::string& name, Deadline deadline,
                                     const ReadClock& clock = read_steady_clock);

}  // namespace lockstep
