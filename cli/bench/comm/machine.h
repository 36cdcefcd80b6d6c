// What `lockstep bench comm` knows of the machine before it starts: cores, the last-level cache,
// how busy it is; and how much memory the buffers take because of it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/comm/request.h"

namespace lockstep::cli {

struct CommMachine {
  int cores = 1;
  std::size_t last_level_cache = 0;  // bytes; 0: the machine does not say
  std::optional<double> load = {};   // processes that ran or wanted to, over the last minute
};

/// As `root` ("/sys") and the kernel say.
[[nodiscard]] CommMachine read_comm_machine(const std::string& root = "/sys");

constexpr std::size_t kMostBytesPerRank = std::size_t{3} << 29;  // 1.5 GiB
constexpr std::size_t kAssumedCache = std::size_t{64} << 20;     // where the machine does not say

/// Sets the request's rotation_bytes and arena_bytes, for its cases: a round of buffers is twice
/// the last-level cache, or as much as kMostBytesPerRank leaves room for. Throws UsageError for a
/// case that does not fit.
void plan_memory(CommRequest& request, std::size_t last_level_cache);

}  // namespace lockstep::cli
