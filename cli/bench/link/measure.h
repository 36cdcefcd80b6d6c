// Measures the TCP link between two ranks: the same script runs at both ends.
//
//   1. latency: small messages back and forth; half of the median round trip
//   2. rate: one connection, from the first rank to the second, then back
//   3. striped rate: kStripes connections at the same time, from the first to the second
//   4. retransmits of all connections, from the kernel (TCP_INFO)
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/machine/cluster.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/socket.h"

namespace lockstep::cli {

constexpr int kStripes = 4;

/// kStripes authenticated connections. The first rank of a pair accepts, the second one connects.
/// Bytes are sent unchanged. Both throw SystemError, and UsageError for a process without the
/// secret.
[[nodiscard]] std::vector<Socket> accept_link(Listener& listener, const Secret& secret,
                                              const HandshakeContext& context, Deadline deadline);
[[nodiscard]] std::vector<Socket> connect_link(const Endpoint& endpoint, const Secret& secret,
                                               const HandshakeContext& context, Deadline deadline);

enum class LinkSide { first, second };

/// Runs the script. Each of its three streams takes about `time`. Returns the figures at both ends.
/// Collective over the two. Throws SystemError when the connection is lost or at the deadline.
[[nodiscard]] LinkFigures measure_link(std::vector<Socket>& sockets, LinkSide side,
                                       std::chrono::milliseconds time, Deadline deadline);

/// The congestion control of a connection, such as "cubic"; empty if the kernel does not tell it.
[[nodiscard]] std::string congestion_control(const Socket& socket);

}  // namespace lockstep::cli
