#include "lockstep/rendezvous/call_size.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "lockstep/machine/links.h"

namespace lockstep {

std::size_t best_call_bytes(std::size_t total, const NetworkLink& link) noexcept {
  constexpr std::size_t kLeast = 256U << 10;
  constexpr std::size_t kMost = 25U << 20;
  const auto per_call = 4 * (link.latency + link.message);
  const auto best = std::sqrt(static_cast<double>(total) * per_call * link.bandwidth);
  if (!(best < static_cast<double>(kMost))) return kMost;
  return std::max(kLeast, std::bit_floor(static_cast<std::size_t>(best)));
}

std::size_t block_bytes(const NetworkLink& link, std::size_t bytes,
                        std::size_t element_bytes) noexcept {
  constexpr std::size_t kLeast = 256U << 10;
  constexpr std::size_t kMost = 1U << 20;
  constexpr std::size_t kLine = 64;  // a multiple of every element
  if (bytes <= kMost) return kMost;
  const auto count = static_cast<std::int64_t>(bytes / element_bytes);
  const auto chunk =
      link.is_measured
          ? measured_chunk(bytes, link.latency, link.bandwidth)
          : static_cast<std::size_t>(unmeasured_chunk(count, link.link_class)) * element_bytes;
  return std::clamp(chunk / kLine * kLine, kLeast, kMost);
}

}  // namespace lockstep
