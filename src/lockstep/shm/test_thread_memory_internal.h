// For tests. The ranks of a group as threads that share one mapping, so that the thread sanitizer
// sees all accesses to the same memory at the same address.
#pragma once

#include <unistd.h>

#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "lockstep/fabric/group.h"
#include "lockstep/shm/connect_internal.h"

namespace lockstep {

// The memory that the threads share.
struct ThreadMemory {
  std::mutex mutex;
  std::map<int, std::shared_ptr<SharedMemory>> made;  // mutex; in the order of allocation
};

class ThreadExchange final : public MemoryExchange {
 public:
  ThreadExchange(std::shared_ptr<ThreadMemory> memory, int size)
      : memory_(std::move(memory)),
        processes_(static_cast<std::size_t>(size), ProcessIdentity::of(::getpid())) {}

  [[nodiscard]] std::shared_ptr<SharedMemory> make(std::size_t bytes, Deadline,
                                                   const Watch&) override {
    const std::lock_guard lock(memory_->mutex);
    auto& memory = memory_->made[next_++];
    if (!memory) memory = std::make_shared<SharedMemory>(bytes);
    return memory;
  }
  [[nodiscard]] bool mapped_apart() const noexcept override { return false; }
  [[nodiscard]] std::span<const ProcessIdentity> processes() const noexcept override {
    return processes_;
  }

 private:
  std::shared_ptr<ThreadMemory> memory_;
  std::vector<ProcessIdentity> processes_;
  int next_ = 0;
};

inline std::shared_ptr<Group> thread_group(std::shared_ptr<ThreadMemory> memory, int rank, int size,
                                           const GroupOptions& options = {},
                                           ShmOptions shm_options = {},
                                           const std::function<Connect(Connect)>& wrap = nullptr) {
  Membership membership;
  membership.rank = rank;
  membership.global_ranks.resize(static_cast<std::size_t>(size));
  std::iota(membership.global_ranks.begin(), membership.global_ranks.end(), 0);
  membership.hosts.resize(static_cast<std::size_t>(size));
  membership.addresses.resize(static_cast<std::size_t>(size));
  membership.registry = std::make_shared<GroupRegistry>();
  if (!shm_options.one_shot_bytes) shm_options.one_shot_bytes = 4096;
  Connect connect = [&](const Membership& own, AddressExchange&, Deadline deadline, const Watch&) {
    return planes_over(std::make_unique<ThreadExchange>(memory, size), own, shm_options, deadline);
  };
  if (wrap) connect = wrap(std::move(connect));
  class NoAddresses final : public AddressExchange {
    void exchange(const std::string&) override {}
    std::string of(int) override { return {}; }
  } addresses;
  auto planes = connect(membership, addresses, Deadline::after(options.timeout), {});
  return std::make_shared<Group>(std::move(membership), std::move(planes), options, Connect{});
}

}  // namespace lockstep
