#include "lockstep/machine/links.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

std::string_view to_string(LinkClass link) noexcept {
  switch (link) {
    case LinkClass::ethernet:
      return "ethernet";
    case LinkClass::infiniband:
      return "infiniband";
    case LinkClass::nvlink:
      return "nvlink";
  }
  return "";
}

LinkClass link_class_of(double bytes_per_second) noexcept {
  constexpr double kGiga = 1e9;
  if (bytes_per_second > 200 * kGiga) return LinkClass::nvlink;
  if (bytes_per_second > 50 * kGiga) return LinkClass::infiniband;
  return LinkClass::ethernet;
}

std::int64_t unmeasured_chunk(std::int64_t count, LinkClass link) noexcept {
  std::int64_t chunk = 0;
  switch (link) {
    case LinkClass::nvlink:
      chunk = std::min<std::int64_t>(count / 4, 1 << 20);
      break;
    case LinkClass::infiniband:
      chunk = std::min<std::int64_t>(count / 8, 256 << 10);
      break;
    case LinkClass::ethernet:
      chunk = std::min<std::int64_t>(count / 16, 64 << 10);
      break;
  }
  return std::max<std::int64_t>(chunk, 1);
}

std::size_t measured_chunk(std::size_t bytes, double latency, double rate) noexcept {
  constexpr double kLeast = 16 << 10;
  constexpr double kMost = 1ULL << 62;
  const double best = std::sqrt(static_cast<double>(bytes) * latency * rate);
  const double exponent = std::round(std::log2(std::clamp(best, kLeast, kMost)));
  return std::min(std::size_t{1} << static_cast<unsigned>(exponent), bytes);
}

int advised_stripes(double rate_of_one, double rate_of_several, int several) noexcept {
  return rate_of_several >= 1.1 * rate_of_one ? several : 1;
}

}  // namespace lockstep
