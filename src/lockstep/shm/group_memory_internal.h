// The shared memory of a group: the control blocks; per rank, inline buffers for small inputs and a
// staging area for data outside registered memory; per pair of ranks, a message queue. And the
// registered memory that the group has allocated, as this rank has it mapped.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/fabric/data_plane.h"
#include "lockstep/net/shared_memory.h"
#include "lockstep/shm/control_block_internal.h"

namespace lockstep {

// The maximum size of an inline input.
constexpr std::size_t kMaxInlineBytes = 16U << 10;
// Inputs up to this size use separate buffers that are close together: those of all ranks and calls
// fit into the cache of a core.
constexpr std::size_t kSmallInlineBytes = 1U << 10;
// The maximum size of an inline input in registered memory that could be reduced in place.
constexpr std::size_t kMaxRegisteredInlineBytes = 4U << 10;
// One half of a rank's staging area. There are two, so that one is filled while the other is read.
constexpr std::size_t kStageBytes = 256U << 10;
constexpr std::size_t kEnvelopes = 16;
constexpr std::size_t kEnvelopeBytes = 128;
constexpr std::size_t kPieceBytes = 64U << 10;

// The position of a span in registered memory.
struct Location {
  std::int32_t allocation = -1;  // -1: not in registered memory
  std::uint64_t offset = 0;

  friend bool operator==(const Location&, const Location&) = default;
};

// The locations of input and output as a call record carries them. All zero: neither is registered.
[[nodiscard]] constexpr MemoryWords words_of(const Location& input, const Location& output) {
  return {static_cast<std::uint32_t>(input.allocation + 1) |
              static_cast<std::uint64_t>(static_cast<std::uint32_t>(output.allocation + 1)) << 32,
          input.offset, output.offset};
}
[[nodiscard]] constexpr Location input_in(const MemoryWords& words) {
  return {static_cast<std::int32_t>(words[0] & 0xFFFFFFFFU) - 1, words[1]};
}
[[nodiscard]] constexpr Location output_in(const MemoryWords& words) {
  return {static_cast<std::int32_t>(words[0] >> 32) - 1, words[2]};
}

// The envelope of a message in flight: what is sent, and the data of a small message. `state` only
// grows: 4 × the number of earlier uses, plus empty, offered, claimed or taken.
struct alignas(128) Envelope {
  enum State : std::uint64_t { empty, offered, claimed, taken };
  std::atomic<std::uint64_t> state;
  std::uint64_t number;  // of the message, counted per sender and receiver
  std::int64_t count;
  std::int32_t tag;
  DType dtype;
  bool refused;  // by the receiver, which expects a different message
  Location location;
  std::array<std::byte, kEnvelopeBytes> bytes;  // the data of a small message
};

struct alignas(128) MessageQueue {
  std::atomic<std::uint64_t> offers;   // envelopes offered so far
  std::atomic<std::uint64_t> written;  // pieces of claimed messages written by the sender
  std::atomic<std::uint64_t> read;     // pieces read by the receiver
  std::array<Envelope, kEnvelopes> envelopes;
  std::array<std::array<std::byte, kPieceBytes>, 2> pieces;
};

// State of a rank that others read only after a failure or a stall. It is separate from the cache
// lines that they poll.
struct alignas(128) RankState {
  std::atomic<std::uint32_t> moving;    // 1 while it may write to the memory of others
  std::atomic<std::uint64_t> waits_in;  // the call it sleeps in; 0: it does not sleep
};

class Allocation final : public RegisteredMemory {
 public:
  /// `memory` holds one header page, then per rank a part of `bytes`, in whole pages.
  Allocation(std::shared_ptr<SharedMemory> memory, std::size_t bytes, int rank);
  ~Allocation() override;

  [[nodiscard]] static std::size_t memory_bytes(std::size_t bytes, int size);
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return part(rank_); }
  [[nodiscard]] std::span<std::byte> part(int rank) const noexcept override;
  [[nodiscard]] std::span<std::byte> all_parts() const noexcept override {
    return memory_->bytes().subspan(page_bytes());
  }
  [[nodiscard]] std::unique_ptr<PrivateView> view_all_parts() const override {
    return std::make_unique<PrivateView>(*memory_, page_bytes(), all_parts().size());
  }

 private:
  std::shared_ptr<SharedMemory> memory_;
  std::size_t bytes_;
  int rank_;
};

class GroupMemory {
 public:
  [[nodiscard]] static std::size_t bytes_for(int size);
  GroupMemory(std::shared_ptr<SharedMemory> memory, int rank, int size);

  [[nodiscard]] ControlBlocks& blocks() noexcept { return blocks_; }
  [[nodiscard]] const ControlBlocks& blocks() const noexcept { return blocks_; }
  /// The one-shot threshold. Rank 0 sets it before its first call if it is known; the others read
  /// it after that call.
  void set_one_shot_bytes(std::size_t bytes) noexcept;
  [[nodiscard]] std::optional<std::size_t> one_shot_bytes() const noexcept;
  /// The inline buffer of `rank` for a call whose largest input has `bytes`.
  [[nodiscard]] std::byte* inline_buffer(int rank, std::uint64_t call,
                                         std::size_t bytes) const noexcept;
  /// The staging buffer of `rank` for round `round`: of its input, or of the result it has
  /// computed.
  [[nodiscard]] std::byte* staged_input(int rank, std::uint64_t round) const noexcept;
  [[nodiscard]] std::byte* staged_result(int rank, std::uint64_t round) const noexcept;
  [[nodiscard]] MessageQueue& message_queue(int from, int to) const noexcept;
  [[nodiscard]] RankState& state(int rank) const noexcept;

  /// Gives up the group. A rank moves data only while RankState::moving is set and while the group
  /// has not been given up (DataPlane::begin_moving). Once a rank has given up the group, a rank
  /// that is not moving data at that time never writes to its memory again.
  void give_up() const noexcept;
  [[nodiscard]] const std::atomic<std::uint64_t>& given_up_word() const noexcept;

  /// Adds new memory as the next allocation.
  std::shared_ptr<Allocation> add(std::shared_ptr<SharedMemory> memory, std::size_t bytes);
  /// Unmaps allocations that every rank has dropped.
  void sweep();
  /// The location of a span of this rank; allocation -1 if it is not in registered memory.
  [[nodiscard]] Location locate(std::span<const std::byte> span) const noexcept;
  /// The address of a location of `rank` in this process; null if this rank has unmapped it.
  [[nodiscard]] std::byte* resolve(int rank, const Location& location) const noexcept;
  /// Replaces the mappings of this rank's parts by private copies, which others cannot write.
  void make_private();

 private:
  struct Entry {
    std::shared_ptr<SharedMemory> memory;
    std::size_t part_bytes = 0;
  };

  std::shared_ptr<SharedMemory> memory_;
  int rank_;
  int size_;
  std::byte* ranks_;  // the area of rank 0; those of the others follow
  ControlBlocks blocks_;
  std::int32_t next_ = 0;
  std::map<std::int32_t, Entry> allocations_;
  std::map<const std::byte*, std::int32_t> own_parts_;  // by start address
};

}  // namespace lockstep
