#include "lockstep/rendezvous/idle_cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>

#include "lockstep/machine/cpu_topology.h"

namespace lockstep {
namespace {

// False also if the process is gone, or has this number in another pid namespace only.
bool try_read_processors(const ProcessIdentity& process, cpu_set_t& processors) {
  CPU_ZERO(&processors);
  return ::sched_getaffinity(process.process, sizeof(processors), &processors) == 0 &&
         ProcessIdentity::of(process.process) == process;
}

}  // namespace

int idle_cores(int cores, int sharers, int threads) noexcept {
  return threads > 0 ? std::max(cores / std::max(sharers, 1) - threads, 0) : 0;
}

int num_sharers(const std::vector<ProcessIdentity>& ranks) {
  cpu_set_t own;
  CPU_ZERO(&own);
  const bool is_known = ::sched_getaffinity(0, sizeof(own), &own) == 0;
  return static_cast<int>(std::count_if(ranks.begin(), ranks.end(), [&](const auto& rank) {
    cpu_set_t both;
    if (!is_known || !try_read_processors(rank, both)) return true;
    CPU_AND(&both, &both, &own);
    return CPU_COUNT(&both) > 0;
  }));
}

int idle_cores(const std::vector<ProcessIdentity>& ranks, const Environment& environment) {
  // Without the variable, LibTorch computes on all cores. A list begins with the outermost loops.
  const auto text = environment.find("OMP_NUM_THREADS").value_or("");
  int threads = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), threads);
  if (threads <= 0) return 0;
  const auto topology = read_cpu_topology(allowed_processors());
  const int idle = idle_cores(topology.num_cores(), num_sharers(ranks), threads);
  if (!topology.quota) return idle;
  // The ranks of a container divide its processor time, whichever cores they use.
  const auto quota = static_cast<int>(*topology.quota);
  return std::min(idle, idle_cores(quota, static_cast<int>(ranks.size()), threads));
}

}  // namespace lockstep
