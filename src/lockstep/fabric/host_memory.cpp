#include <algorithm>
#include <utility>

#include "lockstep/fabric/host_memory_internal.h"

namespace lockstep {
namespace {

// Memory of the ranks of this host, by ranks of the group.
class HostAllocation final : public RegisteredMemory {
 public:
  HostAllocation(std::shared_ptr<RegisteredMemory> memory, std::vector<int> ranks)
      : memory_(std::move(memory)), ranks_(std::move(ranks)) {}

  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return memory_->bytes(); }
  [[nodiscard]] std::span<std::byte> part(int rank) const noexcept override {
    const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
    if (found == ranks_.end()) return {};
    return memory_->part(static_cast<int>(found - ranks_.begin()));
  }

 private:
  std::shared_ptr<RegisteredMemory> memory_;
  std::vector<int> ranks_;
};

}  // namespace

HostMemory::HostMemory(HostPlanes planes, int rank)
    : planes_(std::move(planes)), rank_(rank), plan_(planes_.hosts) {}

std::size_t HostMemory::index_of(int rank) const noexcept {
  return static_cast<std::size_t>(std::lower_bound(ranks().begin(), ranks().end(), rank) -
                                  ranks().begin());
}

std::byte* HostMemory::staged_input(std::size_t index) const noexcept {
  return planes_.stage->part(static_cast<int>(index)).data();
}

std::byte* HostMemory::staged_result(std::size_t index) const noexcept {
  return staged_input(index) + planes_.stage_bytes;
}

std::shared_ptr<RegisteredMemory> HostMemory::allocate(std::size_t bytes, Deadline deadline,
                                                       const Watch& watch) {
  auto memory = std::make_shared<HostAllocation>(
      planes_.planes.data->allocate(bytes, {}, deadline, watch), ranks());
  allocations_[++num_allocations_] = memory;
  return memory;
}

std::optional<HostMemory::Location> HostMemory::locate(std::span<const std::byte> span) {
  std::erase_if(allocations_, [](const auto& each) { return each.second.expired(); });
  if (span.empty()) return std::nullopt;
  for (const auto& [number, kept] : allocations_) {
    auto memory = kept.lock();
    if (!memory) continue;  // dropped by another thread
    const auto bytes = memory->bytes();
    if (span.data() < bytes.data() || span.data() + span.size() > bytes.data() + bytes.size()) {
      continue;
    }
    return Location{number, static_cast<std::uint64_t>(span.data() - bytes.data()),
                    std::move(memory)};
  }
  return std::nullopt;
}

}  // namespace lockstep
