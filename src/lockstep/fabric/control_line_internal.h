// What the ranks of a group tell each other through shared memory, and how one waits for another.
//
// Words: a call has a number, from 1 on, equal on all ranks. A rank has *entered* a call when its
// slot for it is filled; what a call then does is cut into *steps*, numbered through all calls; a
// call is *complete* on a rank when that rank will touch nobody's memory for it any more. The
// control line of a rank holds these three counters, the slots of its last calls, and whether it is
// still there. Only its rank writes it, but for the doorbell.
//
// Memory order: what a rank has written before it raises a counter (release) is seen by who has
// read that value (acquire). Slots, inputs and results need no other order. The doorbell is
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
#include "lockstep/fabric/call.h"

namespace lockstep {

// How many calls of a group a rank may have entered and not completed.
constexpr std::size_t kMaxCallsInFlight = 64;
constexpr std::size_t kCauseBytes = 1024;
constexpr std::size_t kRecentMarks = 4;
constexpr std::uint64_t kFailedMark = 0;  // of a rank that has failed, for every call

// What others read in most calls fills the first cache line; the rest is for people and for calls
// that differ.
struct alignas(64) CallSlot {
  std::uint64_t number = 0;
  CallFlags flags = {};
  Location input = {};
  Location output = {};
  std::int64_t weight = 0;   // where the call has one
  LeafInterval leaves = {};  // where the descriptor has them
  CallDescriptor descriptor = {};
};
static_assert(offsetof(CallSlot, weight) == 64);

enum class Standing : std::uint32_t { joining, present, left, failed };

// Why a group is of no more use, as the first rank to notice says it.
struct Cause {
  int culprit = 0;  // a rank of the group
  std::string text;
};

// What all ranks must have done.
struct Condition {
  enum class Of : std::uint8_t { entered, steps, completed };
  Of of = Of::entered;
  std::uint64_t value = 0;
};

class ControlLines {
 public:
  [[nodiscard]] static std::size_t bytes_for(int size);
  /// `start` is zeroed memory of bytes_for(size) that all ranks have mapped.
  ControlLines(std::byte* start, int rank, int size) noexcept;

  /// Own line. Each wakes who waits for this rank.
  void enter(const CallSlot& slot, std::uint64_t mark) noexcept;
  void raise_steps(std::uint64_t steps) noexcept;
  void complete(std::uint64_t number) noexcept;
  void stand(Standing standing) noexcept;
  void fail(const Cause& cause) noexcept;
  /// After a change outside the line that somebody may wait for.
  void ring() noexcept;
  /// The cores this rank may run on, for count_cores.
  void set_cores(const cpu_set_t& cores) noexcept;

  [[nodiscard]] std::uint64_t counter(int rank, Condition::Of of) const noexcept;
  /// Of the rank that has come least far.
  [[nodiscard]] std::uint64_t lowest(Condition::Of of) const noexcept;
  /// The first rank that has not yet fulfilled `condition`.
  [[nodiscard]] std::optional<int> lagging(const Condition& condition) const noexcept;
  [[nodiscard]] bool lags(int rank, const Condition& condition) const noexcept {
    return counter(rank, condition.of) < condition.value;
  }
  /// The mark `rank` has given to call `number`, which it has entered; that of a later call once it
  /// is kRecentMarks ahead. Marks of different calls differ.
  [[nodiscard]] std::uint64_t mark(int rank, std::uint64_t number) const noexcept;
  /// Valid while this rank has not completed that call, or for the rank's last one.
  [[nodiscard]] const CallSlot& slot(int rank, std::uint64_t number) const noexcept;
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
  // by another. The marks of the last calls lie beside the number of calls entered.
  struct alignas(128) Counter {
    std::atomic<std::uint64_t> value;
    std::array<std::atomic<std::uint64_t>, kRecentMarks> marks;
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
  struct Line {
    std::array<Counter, 3> counters;  // by Condition::Of
    Doorbell doorbell;
    Presence presence;
    std::array<CallSlot, kMaxCallsInFlight> slots;
  };

  [[nodiscard]] static auto& marks_of(Line& line) noexcept { return line.counters[0].marks; }
  [[nodiscard]] Line& line(int rank) const noexcept { return lines_[rank]; }
  [[nodiscard]] Doorbell& doorbell(int rank) const noexcept { return line(rank).doorbell; }
  void raise(Condition::Of of, std::uint64_t value) noexcept;
  static void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value, Deadline until);

  Line* lines_;
  int rank_;
  int size_;
};

}  // namespace lockstep
