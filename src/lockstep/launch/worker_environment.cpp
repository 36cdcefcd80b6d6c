#include "lockstep/launch/worker_environment.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void check(const WorkerIdentity& identity) {
  const bool possible = 0 <= identity.local_rank && identity.local_rank < identity.local_size &&
                        identity.local_size <= identity.size &&
                        identity.local_rank <= identity.rank && identity.rank < identity.size &&
                        0 <= identity.node && identity.node < identity.num_nodes;
  if (possible) return;
  throw UsageError(fmt::format(
      "a worker with rank {} of {}, local rank {} of {}, on node {} of {} is invalid: ranks count "
      "from 0 and are below their sizes",
      identity.rank, identity.size, identity.local_rank, identity.local_size, identity.node,
      identity.num_nodes));
}

// A training step needs the memory that the previous step freed. By default, allocators return
// large blocks to the system after every step, and the kernel clears the same pages again. The
// first two are for glibc's allocator: no block gets a separate mapping, and the heap is never
// trimmed. The last one is for mimalloc, which LibTorch uses on aarch64.
constexpr std::pair<const char*, const char*> kKeepFreedMemory[] = {
    {"MALLOC_MMAP_MAX_", "0"},
    {"MALLOC_TRIM_THRESHOLD_", "9223372036854775807"},
    {"MIMALLOC_PURGE_DELAY", "-1"}};

}  // namespace

Environment worker_environment(const Environment& user, const WorkerVariables& variables) {
  check(variables.identity);
  Environment result = user;
  const auto set = [&result](std::string_view name, int number) {
    result.set(name, std::to_string(number));
  };
  const WorkerIdentity& identity = variables.identity;
  set("RANK", identity.rank);
  set("WORLD_SIZE", identity.size);
  set("LOCAL_RANK", identity.local_rank);
  set("LOCAL_WORLD_SIZE", identity.local_size);
  set("GROUP_RANK", identity.node);
  set("GROUP_WORLD_SIZE", identity.num_nodes);
  // torchrun supports several roles; here is one, whose ranks are the global ones.
  result.set("ROLE_NAME", "default");
  set("ROLE_RANK", identity.rank);
  set("ROLE_WORLD_SIZE", identity.size);
  result.set("MASTER_ADDR", variables.master_address);
  set("MASTER_PORT", variables.master_port);
  set("TORCHELASTIC_RESTART_COUNT", variables.restarts);
  set("TORCHELASTIC_MAX_RESTARTS", variables.max_restarts);
  result.set("TORCHELASTIC_RUN_ID", variables.run_id);
  // No store of PyTorch listens on MASTER_PORT yet: rank 0 of a PyTorch program opens one.
  result.set("TORCHELASTIC_USE_AGENT_STORE", "False");
  if (!result.find("OMP_NUM_THREADS")) set("OMP_NUM_THREADS", variables.threads);
  for (const auto& [name, value] : kKeepFreedMemory) {
    if (!result.find(name)) result.set(name, value);
  }
  for (const auto& [name, value] : variables.extra) result.set(name, value);
  return result;
}

}  // namespace lockstep
