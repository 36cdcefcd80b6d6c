// The transport nccl: calls of NCCL on the stream of the group. One rank per GPU.
//
// NCCL moves bytes; the reductions of `exact` are those of reduce() (kernels/reduce.h),
// bit-identical on all transports:
//
//   all_reduce, in pieces that fit the scratch memory: all-to-all of shards, reduction of the own
//   shard, all-gather. The elements that remain when a piece is divided into aligned shards, fewer
//   than 64 per rank and rank, are gathered and reduced by all ranks.
//
//   reduce_to_owners, in rounds that fit the scratch memory: every rank sends to each owner what
//   that rank owns, and each owner reduces it. gather_from_owners: the owners send to all, without
//   scratch memory. Both are the same with `fast`.
//
// `fast` leaves all_reduce of sums and averages of floating point to NCCL, in an order that depends
// on its choice of algorithm.
//
// A communicator is non-blocking: after each group of calls the recipe waits until NCCL has
// enqueued it. That may need the other ranks, but never the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "lockstep/gpu/device_memory_internal.h"
#include "lockstep/gpu/device_transport_internal.h"
#include "lockstep/gpu/nccl_communicator_internal.h"
#include "lockstep/gpu/nccl_functions.h"
#include "lockstep/gpu/owned_rounds_internal.h"

namespace lockstep {

/// A part of a reduction that fits the scratch memory: `shard` elements per rank, and `remainder`
/// elements that every rank reduces.
struct NcclPiece {
  std::size_t offset = 0;
  std::size_t shard = 0;
  std::size_t remainder = 0;

  friend bool operator==(const NcclPiece&, const NcclPiece&) = default;
};

/// The piece of a reduction of `count` elements that starts at `offset`, for `num_ranks` and pieces
/// of up to `largest` elements, which is a multiple of 64 per rank. Shards start at multiples of 64
/// elements, so that kernels read whole vectors. Pure.
[[nodiscard]] NcclPiece piece_at(std::size_t offset, std::size_t count, std::size_t num_ranks,
                                 std::size_t largest) noexcept;

class NcclTransport final : public DeviceTransport {
 public:
  NcclTransport(const DeviceTransportParts& parts, std::unique_ptr<NcclComm> comm,
                NcclReduction reduction, std::filesystem::path ratios);
  ~NcclTransport() override;

  [[nodiscard]] Recipe begin(DeviceCall& call) override;
  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(Group& group,
                                                           std::size_t bytes) override;
  void tune(Group& group) override;
  void leave(Deadline deadline, const Watch& watch) noexcept override;
  [[nodiscard]] int lagging() const noexcept override;
  [[nodiscard]] std::optional<Cause> find_error() noexcept override;
  void release_waits() noexcept override;

 private:
  // Whether NCCL has enqueued what it was given. A communicator that has failed counts as ready:
  // the next call on it throws.
  class Enqueued final : public LocalCondition {
   public:
    Enqueued(NcclComm& comm, int rank) : comm_(comm), rank_(rank) {}
    [[nodiscard]] std::optional<int> lagging() const noexcept override;

   private:
    NcclComm& comm_;
    int rank_;
  };

  // Each enqueues one call and records its end.
  [[nodiscard]] Recipe move(DeviceCall& call);
  [[nodiscard]] Recipe reduce_all(DeviceCall& call);  // all_reduce, reduce
  [[nodiscard]] Recipe reduce_scatter(DeviceCall& call);
  [[nodiscard]] Recipe reduce_fast(DeviceCall& call);
  [[nodiscard]] Recipe reduce_to_owners(DeviceCall& call);
  [[nodiscard]] Recipe gather_from_owners(DeviceCall& call);

  void end(const DeviceCall& call);
  void exchange_shards(const DeviceCall& call, const NcclPiece& piece);
  void reduce_own_shard(const DeviceCall& call, const NcclPiece& piece);
  void collect_shards(const DeviceCall& call, const NcclPiece& piece);
  // Sends `bytes` at other · stride of `input` to each other rank, and receives those of the others
  // into scratch_.
  [[nodiscard]] DeviceStatus swap_shards(NcclFunctions& nccl, void* comm, const std::byte* input,
                                         std::size_t stride, std::size_t bytes);
  // Reduces `count` elements of each rank: `own`, and those of the others in `scratch`.
  void reduce_scratch(const DeviceCall& call, const std::byte* scratch, std::size_t count,
                      const std::byte* own, std::byte* to);
  // Sends to the other owners their elements of a round, and receives this rank's into scratch_.
  [[nodiscard]] DeviceStatus swap_owned(NcclFunctions& nccl, void* comm, const DeviceCall& call,
                                        const OwnedRounds& rounds, std::size_t round);
  void reduce_owned(const DeviceCall& call, const OwnedRounds& rounds, std::size_t round);
  [[nodiscard]] bool is_fast(const Call& call) const noexcept;
  [[nodiscard]] std::size_t largest_piece(const Call& call) const noexcept;
  [[nodiscard]] Awaited enqueued() const noexcept { return {.local = &enqueued_}; }
  [[nodiscard]] int rank() const noexcept { return parts_.rank(); }
  [[nodiscard]] std::size_t size() const noexcept {
    return static_cast<std::size_t>(parts_.size());
  }
  [[nodiscard]] void* stream() const noexcept { return parts_.context->stream(); }

  const DeviceTransportParts parts_;
  std::unique_ptr<NcclComm> comm_;
  NcclReduction reduction_;  // tune() changes it between calls
  const std::filesystem::path ratios_;
  DeviceMemory memory_;
  const Enqueued enqueued_;
  const std::size_t scratch_bytes_;
  std::byte* scratch_ = nullptr;    // the other ranks' inputs of this rank's shard, by rank
  std::byte* remainder_ = nullptr;  // in the same allocation: the remainders, by rank
  std::atomic<std::uint64_t> last_call_ = 0;
  std::optional<Deadline::Clock::time_point> error_since_;  // used by the watcher only
};

}  // namespace lockstep
