// How much memory the buffers of `lockstep bench comm` take, for the caches of a machine.
#pragma once

#include <cstddef>

#include "cli/bench/comm/request.h"

namespace lockstep::cli {

constexpr std::size_t kMostBytesPerRank = std::size_t{3} << 29;  // 1.5 GiB
constexpr std::size_t kAssumedCache = std::size_t{64} << 20;     // where the machine does not say

/// Sets the request's rotation_bytes and arena_bytes, for its cases: a round of buffers is twice
/// the last-level cache, or as much as kMostBytesPerRank leaves room for. Throws UsageError for a
/// case that does not fit.
void plan_memory(CommRequest& request, std::size_t last_level_cache);

}  // namespace lockstep::cli
