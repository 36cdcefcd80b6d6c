// Registered memory on the devices of a group's ranks.
//
// Each rank allocates its own part. If the ranks map each other's memory, every rank also has the
// address of every part. A part is released after every rank has dropped its own part of the
// allocation and closed its mappings: the ranks compare what they have dropped when they allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/fabric/data_plane.h"
#include "lockstep/fabric/group.h"
#include "lockstep/gpu/device_context_internal.h"
#include "lockstep/gpu/device_transport_internal.h"

namespace lockstep {

/// The memory of one allocation: this rank's part, and those of the others as mapped here.
class DeviceParts {
 public:
  /// Allocates this rank's part, zeroed, and exchanges handles if `maps`. Collective over `group`.
  /// Throws SystemError on every rank, naming the first rank whose device refuses.
  DeviceParts(Group& group, const DeviceTransportParts& parts, std::size_t bytes, bool maps,
              std::string_view what);
  DeviceParts(const DeviceParts&) = delete;
  DeviceParts& operator=(const DeviceParts&) = delete;
  ~DeviceParts();

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The part of `rank`; null if it is not mapped.
  [[nodiscard]] std::byte* at(int rank) const noexcept {
    return starts_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::byte* own() const noexcept { return at(rank_); }
  /// Closes the parts of the others.
  void close() noexcept;

 private:
  void release() noexcept;

  std::shared_ptr<DeviceContext> context_;
  std::size_t bytes_;
  int rank_;
  std::vector<std::byte*> starts_;  // by rank
  std::vector<std::byte*> opened_;  // those of other processes
};

/// All allocations of a group.
class DeviceMemory {
 public:
  DeviceMemory(DeviceTransportParts parts, bool maps) : parts_(std::move(parts)), maps_(maps) {}

  /// As DevicePlane::allocate().
  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(Group& group, std::size_t bytes);

  /// Words by which other ranks find input and output of a call; all zero: neither is registered.
  [[nodiscard]] MemoryWords words_of(const Call& call) const noexcept;
  /// The address of `rank`'s input or output with these words; null: not in registered memory.
  [[nodiscard]] std::byte* input_of(int rank, const MemoryWords& words) const noexcept;
  [[nodiscard]] std::byte* output_of(int rank, const MemoryWords& words) const noexcept;

 private:
  struct Location {
    std::uint32_t number = 0;  // of the allocation, from 1 on; 0: not in registered memory
    std::uint64_t offset = 0;
  };
  [[nodiscard]] Location locate(std::span<const std::byte> span) const noexcept;
  [[nodiscard]] std::byte* resolve(int rank, std::uint32_t number,
                                   std::uint64_t offset) const noexcept;
  void sweep(Group& group);

  DeviceTransportParts parts_;
  bool maps_;
  std::uint32_t next_ = 1;
  mutable std::mutex mutex_;  // guards allocations_, which only allocate() changes
  // This object is the first owner, the registered memory the second one.
  std::map<std::uint32_t, std::shared_ptr<DeviceParts>> allocations_;
};

}  // namespace lockstep
