#include <sched.h>

#include <utility>

#include "lockstep/shm/control_plane_internal.h"

namespace lockstep {
namespace {

cpu_set_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) CPU_SET(0, &cores);
  return cores;
}

}  // namespace

ShmControlPlane::ShmControlPlane(std::shared_ptr<GroupMemory> memory,
                                 std::shared_ptr<const Peers> peers)
    : ControlPlane(/*polls=*/false),  // peers write directly to memory that this rank reads
      memory_(std::move(memory)),
      blocks_(memory_->blocks()),
      peers_(std::move(peers)) {
  blocks_.set_cores(own_cores());
}

std::optional<int> ShmControlPlane::find_other_signature(std::uint64_t number,
                                                         std::uint64_t signature) const {
  for (int rank = 0; rank < blocks_.size(); ++rank) {
    // This rank's own stored signature may be that of a later call: `signature` replaces it.
    if (rank != blocks_.rank() && blocks_.signature(rank, number) != signature) return rank;
  }
  return std::nullopt;
}

void ShmControlPlane::sleep(const Awaited& awaited, int rank, Deadline until) {
  blocks_.sleep(
      rank, [&] { return !awaited.lags(rank); }, until);
}

void ShmControlPlane::set_waits_in(std::uint64_t number) noexcept {
  memory_->state(blocks_.rank()).waits_in.store(number, std::memory_order_relaxed);
}

std::uint64_t ShmControlPlane::waits_in(int rank) const noexcept {
  return memory_->state(rank).waits_in.load(std::memory_order_relaxed);
}

}  // namespace lockstep
