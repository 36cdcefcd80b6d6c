// The amount of memory that the buffers of `lockstep bench comm` use, given the machine's caches.
#pragma once

#include <cstddef>

#include "cli/bench/comm/request.h"

namespace lockstep::cli {

constexpr std::size_t kMostBytesPerRank = std::size_t{3} << 29;  // 1.5 GiB
constexpr std::size_t kAssumedCache = std::size_t{64} << 20;     // if the cache size is unknown

/// Sets rotation_bytes and arena_bytes of `request` for its cases. One rotation of buffers covers
/// twice the last-level cache, or as much as kMostBytesPerRank allows, or as much as the calls of a
/// short run use. Throws UsageError for a case that does not fit.
void plan_memory(CommRequest& request, std::size_t last_level_cache);

}  // namespace lockstep::cli
