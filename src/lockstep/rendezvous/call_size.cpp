#include "lockstep/rendezvous/call_size.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep {

std::size_t best_call_bytes(std::size_t total, const NetworkLink& link) noexcept {
  constexpr std::size_t kLeast = 256U << 10;
  constexpr std::size_t kMost = 25U << 20;
  const auto per_call = 4 * (link.latency + link.message);
  const auto best = std::sqrt(static_cast<double>(total) * per_call * link.bandwidth);
  if (!(best < static_cast<double>(kMost))) return kMost;
  return std::max(kLeast, std::bit_floor(static_cast<std::size_t>(best)));
}

}  // namespace lockstep
