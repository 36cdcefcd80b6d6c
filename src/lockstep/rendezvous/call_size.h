// How many bytes one call moves best, if many bytes are ready one after the other. Pure.
#pragma once

#include <cstddef>

#include "lockstep/rendezvous/network_link.h"

namespace lockstep {

/// The bytes per call with which `total` bytes, ready one after the other, are complete earliest
/// after the last ones are ready: the last call must be short, and each call costs a fixed time
/// o = 4 · (latency + message) of `link`. The sum of both, total / bytes · o + bytes / bandwidth,
/// is least for sqrt(total · o · bandwidth). Rounded down to a power of two, from 256 KiB to
/// 25 MiB.
[[nodiscard]] std::size_t best_call_bytes(std::size_t total, const NetworkLink& link) noexcept;

}  // namespace lockstep
