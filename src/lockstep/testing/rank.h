// A rank of a test, as the body of the test sees it. It is the same for ranks as threads
// (threads.h) and ranks as processes (processes.h), so that one body can be run both ways.
#pragma once

#include <string_view>

#include "lockstep/base/deadline.h"

namespace lockstep::testing {

class Board;

class Rank {
 public:
  /// Constructed by the run functions. `board` must outlive this object.
  Rank(Board& board, int rank) noexcept : board_(board), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept;
  /// The time at which the limit of the run expires.
  [[nodiscard]] Deadline deadline() const noexcept;

  /// Records what this rank does next, for example note("waiting in barrier 3"). The report of a
  /// hang shows the last note of each rank and its age. Text after 239 bytes is cut. Any thread of
  /// the rank may call this, one at a time.
  void note(std::string_view text);

  /// Waits for all ranks. For tests that need an order and must not use the tested code for it.
  /// Collective: every rank calls this the same number of times. Returns when all ranks have
  /// called it.
  /// Throws PeerError that names a rank that has ended or has not reached the barrier by
  /// `deadline`. No rank may call barrier() after that.
  void barrier(Deadline deadline);

 private:
  Board& board_;
  int rank_;
};

}  // namespace lockstep::testing
