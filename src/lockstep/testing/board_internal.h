// The memory that all ranks of one run share: what each is doing, for reports of a hang, and a
// barrier. It lies in a memfd, so threads and processes use it alike. Nothing in it takes a lock: a
// rank that is stopped or killed in the middle of a write leaves the others and the report
// unharmed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep::testing {

enum class RankState : std::uint32_t { starting, running, finished, failed };

struct Note {
  std::string text;
  Deadline::Clock::time_point at;  // the clock is the machine's, so it compares between processes
};

class Board {
 public:
  static constexpr int kMostRanks = 64;

  /// A new board. Throws UsageError unless `size` is from 1 to kMostRanks, SystemError without
  /// memory.
  Board(int size, Deadline deadline);
  /// The board that another process made. Throws SystemError when it cannot be mapped.
  explicit Board(FileDescriptor memory);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board();

  /// `rank` runs on the calling thread from here on.
  void enter(int rank);
  /// `rank` has ended. Wakes whoever waits for it.
  void leave(int rank, RankState state);
  void note(int rank, std::string_view text);
  /// As Rank::barrier.
  void barrier(int rank, Deadline deadline);
  /// Returns when the last note of `rank` is `text`. Throws PeerError when the rank ends first or
  /// `deadline` passes.
  void wait_for_note(int rank, std::string_view text, Deadline deadline) const;

  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] Deadline deadline() const noexcept;
  [[nodiscard]] RankState state(int rank) const noexcept;
  /// The kernel's id of the thread that entered as `rank`; 0 before.
  [[nodiscard]] pid_t thread(int rank) const noexcept;
  [[nodiscard]] std::optional<Note> last_note(int rank) const;
  [[nodiscard]] int descriptor() const noexcept { return memory_.number(); }

 private:
  struct Head;
  struct Slot;

  void map(std::size_t bytes);
  [[nodiscard]] Slot& slot(int rank) const noexcept;
  /// Throws PeerError if some rank can no longer reach barrier `number`.
  void expect_all_alive(std::uint32_t number) const;

  FileDescriptor memory_;
  Head* head_ = nullptr;  // start of the mapping, followed by a Slot for each rank
};

}  // namespace lockstep::testing
