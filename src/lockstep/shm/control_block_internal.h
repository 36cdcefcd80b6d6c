// What the ranks of a group tell each other through shared memory, and how one waits for another.
//
// The control block of a rank holds its three counters (fabric/counters.h), the records of its last
// calls, and whether it is still there. Only its rank writes it, but for the doorbell.
//
// Memory order: what a rank has written before it raises a counter (release) is seen by who has
// read that value (acquire). Records, inputs and results need no other order. The doorbell is
// Dekker's pattern: raise, then look for sleepers; count oneself a sleeper, then look at the
// counter; all four sequentially consistent, so one of the two sees the other.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/control_plane.h"

namespace lockstep {

constexpr std::size_t kCauseBytes = 1024;
constexpr std::size_t kRecentSignatures = 4;
constexpr std::uint64_t kFailedSignature = 0;  // of a rank that has failed, for every call

class ControlBlocks {
 public:
  [[nodiscard]] static std::size_t bytes_for(int size);
  /// `start` is zeroed memory of bytes_for(size) that all ranks have mapped.
  ControlBlocks(std::byte* start, int rank, int size) noexcept;

  /// Own block. Each wakes who waits for this rank.
  [[nodiscard]] CallRecord& own_record(std::uint64_t number) noexcept;
  void enter(std::uint64_t number, std::uint64_t signature) noexcept;
  void raise_phases(std::uint64_t phases) noexcept;
  void complete(std::uint64_t number) noexcept;
  void stand(Standing standing) noexcept;
  void fail(const Cause& cause) noexcept;
  /// After a change outside the block that somebody may wait for.
  void ring() noexcept;
  /// The cores this rank may run on, for count_cores.
  void set_cores(const cpu_set_t& cores) noexcept;

  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  /// The signature `rank` has given to call `number`, which it has entered; that of a later call
  /// once it is kRecentSignatures ahead. Signatures of different calls differ.
  [[nodiscard]] std::uint64_t signature(int rank, std::uint64_t number) const noexcept;
  /// Valid while this rank has not completed that call, or for the rank's last one.
  [[nodiscard]] const CallRecord& record(int rank, std::uint64_t number) const noexcept;
  [[nodiscard]] Standing standing(int rank) const noexcept;
  /// Of a rank that has failed.
  [[nodiscard]] Cause cause(int rank) const;
  /// How many cores the ranks may run on together.
  [[nodiscard]] int count_cores() const noexcept;

  /// Sleeps until `rank` rings, or `until`; returns at once when `fulfilled` says so after this
  /// rank has made itself heard. May also wake for nothing.
  template <typename Fulfilled>
  void sleep(int rank, const Fulfilled& fulfilled, Deadline until) const {
    auto& bell = doorbell(rank);
    bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const auto heard = bell.rings.load(std::memory_order_seq_cst);
    if (!fulfilled()) sleep_on(bell.rings, heard, until);
    bell.sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

 private:
  // 128 bytes: processors fetch lines in pairs. One counter each: who spins on one is not disturbed
  // by another. The signatures of the last calls lie beside the number of calls entered.
  struct alignas(128) Counter {
    std::atomic<std::uint64_t> value;
    std::array<std::atomic<std::uint64_t>, kRecentSignatures> signatures;
  };
  struct alignas(128) Doorbell {
    std::atomic<std::uint32_t> rings;
    std::atomic<std::uint32_t> sleepers;
  };
  struct alignas(128) Presence {
    std::atomic<Standing> standing;
    std::int32_t culprit;
    std::array<char, kCauseBytes> cause;
    cpu_set_t cores;
  };
  struct Block {
    std::array<Counter, 3> counters;  // by Condition::Of
    Doorbell doorbell;
    Presence presence;
    std::array<CallRecord, kMaxCallsInFlight> records;
  };

  [[nodiscard]] static auto& signatures_of(Block& block) noexcept {
    return block.counters[0].signatures;
  }
  [[nodiscard]] Block& block(int rank) const noexcept { return blocks_[rank]; }
  [[nodiscard]] Doorbell& doorbell(int rank) const noexcept { return block(rank).doorbell; }
  void raise(Condition::Of of, std::uint64_t value) noexcept;
  static void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value, Deadline until);

  Block* blocks_;
  Counters counters_;
  int rank_;
  int size_;
};

}  // namespace lockstep
