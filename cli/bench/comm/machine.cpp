#include "cli/bench/comm/machine.h"

#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: getloadavg is not in <cstdlib>

#include <algorithm>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/machine/cpu_topology.h"

namespace lockstep::cli {
namespace {

// The largest of the caches that the kernel lists for the processor: "32768K".
std::size_t largest_cache(const std::string& root, int processor) {
  std::size_t largest = 0;
  for (int index = 0;; ++index) {
    std::ifstream file(
        fmt::format("{}/devices/system/cpu/cpu{}/cache/index{}/size", root, processor, index));
    std::size_t number = 0;
    char unit = 'B';
    if (!(file >> number)) return largest;
    file >> unit;
    largest = std::max(largest, number << (unit == 'K' ? 10U : unit == 'M' ? 20U : 0U));
  }
}

}  // namespace

CommMachine read_comm_machine(const std::string& root) {
  const auto allowed = allowed_processors();
  CommMachine machine{.cores = read_cpu_topology(allowed, root).num_cores()};
  for (const int processor : allowed) {
    machine.last_level_cache = std::max(machine.last_level_cache, largest_cache(root, processor));
  }
  if (double load = 0; ::getloadavg(&load, 1) == 1) machine.load = load;
  return machine;
}

void plan_memory(CommRequest& request, std::size_t last_level_cache) {
  std::size_t largest_slot = kSlotAlignment;
  bool library = false;
  const CommCase* largest = nullptr;
  for (const auto& timed : request.cases) {
    library = library || timed.memory == MemoryKind::library;
    const auto slot = slot_layout(timed, 0, request.ranks).slot_bytes;
    if (slot < largest_slot) continue;
    largest_slot = slot;
    largest = &timed;
  }
  // The in-place add needs ordinary memory in any case.
  const auto arena_limit = kMostBytesPerRank / (library ? 2 : 1);
  if (largest_slot > arena_limit) {
    throw UsageError(fmt::format(
        "{} of {} does not fit: a rank's buffers take at most {}{}; ask for smaller --sizes",
        to_string(largest->op), size_in_words(largest->bytes), size_in_words(kMostBytesPerRank),
        library ? ", half of it library memory" : ""));
  }
  const auto cache = last_level_cache > 0 ? last_level_cache : kAssumedCache;
  request.arena_bytes = std::min(2 * cache + largest_slot, arena_limit);
  request.rotation_bytes = std::min(2 * cache, request.arena_bytes);
}

}  // namespace lockstep::cli
