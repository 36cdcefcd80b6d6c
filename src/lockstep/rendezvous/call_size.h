// How many bytes one call moves best, if many bytes are ready one after the other, and in which
// blocks they move. Pure.
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

/// The bytes of the blocks in which a call of `bytes`, whose elements have `element_bytes`, moves:
/// one is combined while the next is on its way. measured_chunk() of a link that was measured, and
/// unmeasured_chunk() of its class otherwise (machine/links.h). From 256 KiB to 1 MiB, the largest
/// frame of the network, and 1 MiB for a call of up to as much: smaller blocks cost more system
/// calls than they save. A multiple of 64.
[[nodiscard]] std::size_t block_bytes(const NetworkLink& link, std::size_t bytes,
                                      std::size_t element_bytes) noexcept;

}  // namespace lockstep
