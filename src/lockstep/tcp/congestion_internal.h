// The congestion control of connections between ranks.
//
// BBR sends at the rate that it has measured, by timers, and keeps no more bytes on the way than
// this rate times the lowest round trip. Between hosts of one site, whose round trips take
// microseconds, it leaves the wire idle while a process does not run, and its timers take processor
// time. Over long distances, where packets are lost, it is the faster one. So where BBR is the
// default of this machine, connections begin with another one, and those with long round trips
// return to BBR. The opposite order would keep the timers: a socket that has begun to pace
// continues. Every other default is kept.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace lockstep {

/// Whether a connection with this lowest round trip uses `preset`, the default of the machine.
/// Pure.
[[nodiscard]] bool is_suited(std::string_view preset,
                             std::chrono::microseconds round_trip) noexcept;

/// Replaces the default of a socket that is not connected yet, or of a listener, whose connections
/// inherit it, if it is BBR. Returns the default; empty if it is unknown. A process without
/// privileges may choose only what the administrator allows; Reno always is.
std::string set_congestion_control(int descriptor);
/// Returns to `preset` if it is suited for this connection, which has measured round trips.
void settle_congestion_control(int descriptor, const std::string& preset);

}  // namespace lockstep
