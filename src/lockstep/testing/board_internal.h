// The memory that all ranks of one run share: the state and the last note of each rank, for reports
// of a hang, and a barrier. It is a memfd, so that ranks as threads and as processes use it in the
// same way. No function takes a lock: a rank that is stopped or killed during a write affects
// neither the other ranks nor the report.
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
  Deadline::Clock::time_point at;  // the monotonic clock, which is the same in all processes
};

class Board {
 public:
  static constexpr int kMostRanks = 128;

  /// A new board. Throws UsageError unless `size` is from 1 to kMostRanks, SystemError when there
  /// is not enough memory.
  Board(int size, Deadline deadline);
  /// A board that another process created. Throws SystemError when it cannot be mapped.
  explicit Board(FileDescriptor memory);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board();

  /// Records that `rank` runs on the calling thread.
  void enter(int rank);
  /// Records that `rank` has ended. Wakes the threads that wait for it.
  void leave(int rank, RankState state);
  void note(int rank, std::string_view text);
  /// As Rank::barrier.
  void barrier(int rank, Deadline deadline);
  /// Returns when the last note of `rank` is `text`. Throws PeerError when the rank ends first or
  /// `deadline` expires.
  void wait_for_note(int rank, std::string_view text, Deadline deadline) const;

  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] Deadline deadline() const noexcept;
  [[nodiscard]] RankState state(int rank) const noexcept;
  /// The kernel's id of the thread that called enter() for `rank`; 0 before that.
  [[nodiscard]] pid_t thread(int rank) const noexcept;
  [[nodiscard]] std::optional<Note> last_note(int rank) const;
  [[nodiscard]] int descriptor() const noexcept { return memory_.number(); }

 private:
  struct Head;
  struct Entry;

  void map(std::size_t bytes);
  [[nodiscard]] Entry& entry(int rank) const noexcept;
  /// Throws PeerError if a rank has ended before it reached barrier `number`.
  void expect_all_alive(std::uint32_t number) const;

  FileDescriptor memory_;
  Head* head_ = nullptr;  // start of the mapping; one Entry per rank follows
};

}  // namespace lockstep::testing
