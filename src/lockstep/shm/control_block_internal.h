// The state that the ranks of a group publish through shared memory, and how a rank waits for
// another.
//
// The control block of a rank holds its three counters (fabric/counters.h), the records of its last
// calls, and its standing. Only its rank writes it, except for the doorbell.
//
// Memory order: everything that a rank has written before it raises a counter (release) is visible
// to a rank that has read that value (acquire). Records, inputs and results need no other order.
// The doorbell is Dekker's pattern. The waker raises the counter, then reads the number of
// sleepers. The sleeper increments the number of sleepers, then reads the counter. All four
// accesses are sequentially consistent, so at least one of the two sees the other.
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
constexpr std::uint64_t kFailedSignature = 0;  // of every call of a failed rank

class ControlBlocks {
 public:
  [[nodiscard]] static std::size_t bytes_for(int size);
  /// `start` is zeroed memory of bytes_for(size), mapped by all ranks.
  ControlBlocks(std::byte* start, int rank, int size) noexcept;

  /// These write the block of this rank. Each of them but own_record() wakes the ranks that wait
  /// for this rank.
  [[nodiscard]] CallRecord& own_record(std::uint64_t number) noexcept;
  void enter(std::uint64_t number, std::uint64_t signature) noexcept;
  void raise_phases(std::uint64_t phases) noexcept;
  void complete(std::uint64_t number) noexcept;
  void set_standing(Standing standing) noexcept;
  void fail(const Cause& cause) noexcept;
  /// Wakes waiting ranks after a change outside the block.
  void ring() noexcept;
  /// Publishes the cores that this rank may run on, for count_cores().
  void set_cores(const cpu_set_t& cores) noexcept;

  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  /// The signature of call `number`, which `rank` has entered; that of a later call if `rank` is
  /// kRecentSignatures ahead. Signatures of different calls differ.
  [[nodiscard]] std::uint64_t signature(int rank, std::uint64_t number) const noexcept;
  /// The record of `rank` for call `number`. Valid until this rank has completed that call, and for
  /// the last call of `rank`.
  [[nodiscard]] const CallRecord& record(int rank, std::uint64_t number) const noexcept;
  [[nodiscard]] Standing standing(int rank) const noexcept;
  /// The cause that a failed rank has published.
  [[nodiscard]] Cause cause(int rank) const;
  /// The number of cores that the ranks may run on together.
  [[nodiscard]] int count_cores() const noexcept;

  /// Sleeps until `rank` rings or until `until`. Returns at once if `fulfilled` returns true after
  /// this rank has registered as a sleeper. Spurious wakeups occur.
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
  // 128 bytes, because processors fetch cache lines in pairs. One counter per structure: a rank
  // that spins on one is not disturbed by writes to another. The signatures of the last calls are
  // next to the number of entered calls.
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
