// The memory that a group's ranks talk through: their control blocks, and for each rank slots for
// small inputs and a staging area for what does not lie in registered memory; for each pair of
// ranks a mailbox. And the registered memory they have allocated, as this rank has it mapped.
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

// Inputs up to this size can travel with the call.
constexpr std::size_t kMaxInlineBytes = 16U << 10;
// Up to this size they have slots of their own that lie close together: those of all ranks and
// calls fit in a core's cache.
constexpr std::size_t kSmallInlineBytes = 1U << 10;
// The same for what lies in registered memory and could be joined there.
constexpr std::size_t kMaxRegisteredInlineBytes = 4U << 10;
// One half of a rank's staging area; two, so that one is filled while the other is read.
constexpr std::size_t kStageBytes = 256U << 10;
constexpr std::size_t kLetters = 16;
constexpr std::size_t kLetterBytes = 128;
constexpr std::size_t kMailBytes = 64U << 10;

// Where in registered memory a span lies.
struct Location {
  std::int32_t allocation = -1;  // -1: not in registered memory
  std::uint64_t offset = 0;

  friend bool operator==(const Location&, const Location&) = default;
};

// As a call's record carries the places of its input and output. All zero: neither is registered.
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

// A message on its way from one rank to another. `state` only grows: 4 × the times it has been used
// before, plus empty, offered, claimed or taken.
struct alignas(128) Letter {
  enum State : std::uint64_t { empty, offered, claimed, taken };
  std::atomic<std::uint64_t> state;
  std::uint64_t number;  // of the sender's messages to this receiver
  std::int64_t count;
  std::int32_t tag;
  DType dtype;
  bool refused;  // by the receiver, whose call differs
  Location location;
  std::array<std::byte, kLetterBytes> bytes;  // of a small message
};

struct alignas(128) Mailbox {
  std::atomic<std::uint64_t> offers;   // letters offered so far
  std::atomic<std::uint64_t> written;  // pieces of claimed messages, by the sender
  std::atomic<std::uint64_t> read;     // and by the receiver
  std::array<Letter, kLetters> letters;
  std::array<std::array<std::byte, kMailBytes>, 2> pieces;
};

// What a rank says of itself that others look at only when something is wrong, apart from the lines
// they poll.
struct alignas(128) RankState {
  std::atomic<std::uint32_t> moving;    // it may be writing to others' memory now
  std::atomic<std::uint64_t> waits_in;  // the call it sleeps in; 0: it does not
};

class Allocation final : public RegisteredMemory {
 public:
  /// The memory holds a page of ours, then for each rank a part of `bytes`, in whole pages.
  Allocation(std::shared_ptr<SharedMemory> memory, std::size_t bytes, int rank);
  ~Allocation() override;

  [[nodiscard]] static std::size_t memory_bytes(std::size_t bytes, int size);
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override;

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
  /// Largest input that travels with its call. The leader sets it before its first call, if it
  /// knows; the others look after it.
  void set_one_shot_bytes(std::size_t bytes) noexcept;
  [[nodiscard]] std::optional<std::size_t> one_shot_bytes() const noexcept;
  /// Of `rank` for a call whose largest input has `bytes`.
  [[nodiscard]] std::byte* inline_slot(int rank, std::uint64_t call,
                                       std::size_t bytes) const noexcept;
  /// What rank's staging holds of round `round`: its input, or the result it has computed.
  [[nodiscard]] std::byte* staged_input(int rank, std::uint64_t round) const noexcept;
  [[nodiscard]] std::byte* staged_result(int rank, std::uint64_t round) const noexcept;
  [[nodiscard]] Mailbox& mailbox(int from, int to) const noexcept;
  [[nodiscard]] RankState& state(int rank) const noexcept;

  /// A rank moves data only while its state says so, and only while the group has not been given up
  /// (DataPlane::begin_moving). So once a rank has given the group up, no rank that does not move
  /// then writes to its memory ever again.
  void give_up() const noexcept;
  [[nodiscard]] const std::atomic<std::uint64_t>& given_up_word() const noexcept;

  /// Takes over new memory as the next allocation.
  std::shared_ptr<Allocation> add(std::shared_ptr<SharedMemory> memory, std::size_t bytes);
  /// Forgets allocations that every rank has dropped.
  void sweep();
  [[nodiscard]] Location locate(std::span<const std::byte> span) const noexcept;
  /// Where `rank` has what it located; null when this rank has it no more.
  [[nodiscard]] std::byte* resolve(int rank, const Location& location) const noexcept;
  /// Cuts this rank's parts off from what others may still write.
  void make_private();

 private:
  struct Entry {
    std::shared_ptr<SharedMemory> memory;
    std::size_t part_bytes = 0;
  };

  std::shared_ptr<SharedMemory> memory_;
  int rank_;
  int size_;
  ControlBlocks blocks_;
  std::int32_t next_ = 0;
  std::map<std::int32_t, Entry> allocations_;
  std::map<const std::byte*, std::int32_t> own_parts_;  // by their starts
};

}  // namespace lockstep
