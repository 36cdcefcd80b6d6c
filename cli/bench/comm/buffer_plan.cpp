#include "cli/bench/comm/buffer_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/comm/measure.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
void plan_memory(CommRequest& request, std::size_t last_level_cache) {
  std::size_t largest_buffer = kBufferAlignment;
  std::size_t most_used = 0;
  bool registered = false;
  const CommCase* largest = nullptr;
  for (const auto& timed : request.cases) {
    registered = registered || timed.memory == MemoryKind::registered;
    most_used = std::max(most_used, most_bytes_used(request, timed));
    const auto buffer = buffer_layout(timed, 0, request.ranks).buffer_bytes;
    if (buffer < largest_buffer) continue;
    largest_buffer = buffer;
    largest = &timed;
  }
  // The in-place add always uses ordinary memory.
  const auto arena_limit = kMostBytesPerRank / (registered ? 2 : 1);
  if (largest_buffer > arena_limit) {
    throw UsageError(fmt::format(
        "{} of {} does not fit: the buffers of a rank use at most {}{}; give smaller --sizes",
        to_string(largest->op), size_in_words(largest->bytes), size_in_words(kMostBytesPerRank),
        registered ? ", half of it registered memory" : ""));
  }
  const auto cache = last_level_cache > 0 ? last_level_cache : kAssumedCache;
  request.arena_bytes = std::min({2 * cache + largest_buffer, most_used, arena_limit});
  request.rotation_bytes = std::min(2 * cache, request.arena_bytes);
}

}  // namespace lockstep::cli
