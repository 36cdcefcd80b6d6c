// The memory that the ranks of one host share in a group over several hosts: a stage per rank, and
// registered memory. A rank writes only to its own part and reads those of the others, so that no
// rank can change the memory of another one, whatever fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/fabric/host_plan.h"
#include "lockstep/fabric/host_planes.h"

namespace lockstep {

class HostMemory {
 public:
  HostMemory(HostPlanes planes, int rank);

  [[nodiscard]] const HostPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] int host() const noexcept { return plan_.host_of(rank_); }
  /// The ranks of this host, as ranks of the group. Here, they are numbered by their index in it.
  [[nodiscard]] const std::vector<int>& ranks() const { return plan_.ranks_of(host()); }
  [[nodiscard]] std::size_t size() const { return ranks().size(); }
  [[nodiscard]] std::size_t index_of(int rank) const noexcept;
  [[nodiscard]] std::size_t own_index() const noexcept { return index_of(rank_); }

  [[nodiscard]] std::size_t stage_bytes() const noexcept { return planes_.stage_bytes; }
  [[nodiscard]] std::byte* staged_input(std::size_t index) const noexcept;
  [[nodiscard]] std::byte* staged_result(std::size_t index) const noexcept;

  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(std::size_t bytes, Deadline deadline,
                                                           const Watch& watch);
  /// A span of this rank in registered memory. Numbers are equal on all ranks.
  struct Location {
    std::uint64_t allocation = 0;  // its number, from 1
    std::uint64_t offset = 0;
    std::shared_ptr<RegisteredMemory> memory;
  };
  [[nodiscard]] std::optional<Location> locate(std::span<const std::byte> span);

  // Phases that this rank has ended, over all calls. The ranks of a host end the same ones.
  std::uint64_t phases = 0;

 private:
  HostPlanes planes_;
  int rank_;
  HostPlan plan_;
  std::uint64_t num_allocations_ = 0;
  std::map<std::uint64_t, std::weak_ptr<RegisteredMemory>> allocations_;
};

}  // namespace lockstep
