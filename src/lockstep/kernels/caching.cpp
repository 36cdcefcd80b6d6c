#include "lockstep/kernels/caching.h"

#include <unistd.h>

#include <algorithm>

namespace lockstep {

std::size_t stream_bytes() noexcept {
  static const auto bytes = [] {
    constexpr long kLeast = 8L << 20;
    return static_cast<std::size_t>(std::max(kLeast, ::sysconf(_SC_LEVEL3_CACHE_SIZE) / 4));
  }();
  return bytes;
}

}  // namespace lockstep
