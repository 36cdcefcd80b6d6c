// Whether results are written through the caches or past them.
#pragma once

#include <cstddef>

namespace lockstep {

enum class Caching { through, past };

/// The size from which a buffer exceeds the part of the last-level cache that one core can use: a
/// quarter of that cache, and 8 MiB where the system does not state its size. After the whole of
/// such a buffer has been written, none of it is still cached. A copy into it bypasses the caches.
/// The destination is then not read into them first, which saves one third of the traffic of a
/// copy on processors that would do that. A later reader fetches it from memory in both cases.
[[nodiscard]] std::size_t stream_bytes() noexcept;

/// How to write parts of a buffer of `bytes`, which are all written before one is read.
[[nodiscard]] inline Caching caching_for(std::size_t bytes) noexcept {
  return bytes >= stream_bytes() ? Caching::past : Caching::through;
}

}  // namespace lockstep
